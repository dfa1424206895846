"""Deliver messages under a lease, at once or when there are some.

`accept` takes polls, `execute` claims partitions for them and cuts the messages out of segments
(`batches`), `hand_over` lets pushes claim for them. Waiting is decided in `parking` (pure) and
carried out by `long_poll`; `deadlines` answers polls whose time is over while the database is
silent. `discovery` finds the queues of a namespace or task, `lease_memory` the offsets that acks
mean. A WebSocket feed (`feed`) is a loop of polls; `tail` reads the log without claiming.
"""
