# Generated from skep/client/aio/__init__.py by tools/generate_blocking_client.py; edit that.
# ruff: noqa: UP028, E501 (asynchronous generators cannot delegate; names differ in length)
"""The client that blocks: what the client is, and the source of the blocking one."""
