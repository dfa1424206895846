"""What the broker does, one package for each topic.

A topic has the same name here, in the SQL functions and in their tests. The hot topics push, pop
and ack have `accept` (what a request must be, and how it enters the engine) and `execute` (what one
call does with a batch of requests); `skep.app.parts` binds the two to an operation of the engine.
A request that finds no room branches off to `overload`, a push that finds no database to
`failover`. Small topics (`streams`, `traces`) are modules. The other modules here are shared:
`directory` (names to ids), `timestamps`, `paging`, `polling_loop`, `timetable`.
"""
