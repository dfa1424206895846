"""Routes of the ASGI application, one module per resource."""
