"""Bytes to requests: the connection, its limits and the order of its answers.

`protocol` reads hot requests straight from the parser; everything else goes on to uvicorn's own
path.
"""
