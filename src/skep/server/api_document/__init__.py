"""The OpenAPI document: what Litestar cannot describe by itself."""
