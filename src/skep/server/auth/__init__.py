"""Who is calling, and what it may do: tokens, keys, grants, TLS, browsers.

`guard` wraps hot handlers and is the middleware of all other routes. Both go by the access
that an operation declares (`access`) and by the `identity` of its caller.
"""
