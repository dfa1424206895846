"""Store messages: once each, in the order they came, all items answered.

`accept` sorts items by partition and hands them to the engine; `execute` stores a batch with one
call. The queue's own rules (`rules`, `enforcement`, `size_limit`) decide in between.
"""
