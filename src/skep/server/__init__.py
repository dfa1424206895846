"""The HTTP edge: parser fast path, ASGI application, problems."""
