"""Keys and values: one key by its path, for people with curl, and lists of keys for operators.

Clients send calls of many operations, which are a hot route. No route here takes a query string:
keys may say what access logs must not.
"""
