"""The Python client. `skep.client.blocking` is generated from `skep.client.aio`."""
