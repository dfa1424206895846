"""Keep messages on this machine's disk while PostgreSQL cannot take them, durable and in order.

`writer` appends to `log`, a directory of files of `records`; `board` shows all processes its state.
"""
