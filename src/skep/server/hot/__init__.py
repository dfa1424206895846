"""The hot routes: push, pop, ack, transaction and lease extension, without Litestar.

Handlers return at once and answer later; `exchange` hides which server carries a request.
"""
