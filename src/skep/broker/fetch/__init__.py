"""Reads by offset: the log of a partition from a position on, without a lease or a cursor.

`request` says what a read may ask for (pure); `accept` lets reads into the engine and keeps those
that wait for messages; `execute` carries out the reads of many clients at once; `positions` answers
where a time begins and which partitions have changed, up to a time that is safe. It imports the
engine, the database access and, of the broker, only what pops use too.
"""
