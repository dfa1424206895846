"""Store messages: once each, in the order they came, all items answered.

`accept` sorts items by partition and hands them to the engine; `execute` stores a batch with one
call. In between, `rules` validates and encrypts and `size_limit` admits, as each queue demands.
"""
