# Generated from skep/client/aio/__init__.py by tools/generate_blocking_client.py; edit that.
"""The client that blocks: what the client is, and the source of the blocking one."""
