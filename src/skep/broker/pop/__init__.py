"""Deliver messages under a lease, at once or when there are some.

`accept` takes polls, `execute` claims partitions for them and cuts the messages out of segments.
Waiting is decided in `parking` (pure) and carried out by `long_poll`. WebSocket feeds (`feed`) and
`tail` are loops of the same polls.
"""
