"""What becomes of requests when there is no room for them.

`intake` is where hot routes hand requests over. Without room a request waits in the line, is stored
as an operation and answered 202, or is refused in time; `shares` (pure) decides who gives way.
"""
