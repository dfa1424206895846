"""Request fusion: many clients' requests in few procedure calls, in order and within bounds.

`fusion` (pure) decides what leaves when, by `policy` and `limiter`; `driver` runs the calls.
`key_cache` proves that keys are not stored yet.
"""
