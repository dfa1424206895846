# Generated from skep/client/aio/__init__.py by tools/generate_blocking_client.py; edit that.
"""The Python client. `skep.client.blocking` is generated from `skep.client.aio`."""
