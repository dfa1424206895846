"""Who is asking, and what they may do: tokens, keys, grants, TLS, browsers.

`hot_guard` wraps hot handlers, `guard` is the middleware of all other routes. Both go by the access
that an operation declares (`access`) and by `identity`, which is pure.
"""
