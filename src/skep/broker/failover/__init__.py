"""Keep pushes on disk while PostgreSQL is away, or while maintenance keeps them from it.

`outage` and `maintenance` are the reasons, `diversion` sends pushes to the log on disk, `drain`
stores that log in order once the database is back. Later pushes never overtake what is on disk.
"""
