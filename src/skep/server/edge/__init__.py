"""From bytes to requests: the connection, its limits and the order of its answers.

`limits` bounds a connection, `protocol` reads hot requests straight from the parser and passes all
others to uvicorn, `pipelining` orders the answers, `metering` counts requests.
"""
