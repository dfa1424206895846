"""Timers: scheduled messages under a key of the client's own, which replaces or cancels them.

A timer is a row of the scheduled messages, and what moves these into the log fires it. `operations`
says what a call may contain (pure); `accept` lets it into the engine; `execute` carries out the
calls of many clients at once; `answer` renders what became of them (pure); `browse` shows timers
that wait.
"""
