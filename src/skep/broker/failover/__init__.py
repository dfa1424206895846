"""Pushes while PostgreSQL is away, or kept from it on purpose.

`outage` and `maintenance` are the reasons, `diversion` sends pushes to the log on disk, `drain`
stores that log in order once the database is back. What is on disk is never overtaken.
"""
