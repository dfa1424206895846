"""The keys that partitions store, in bounded memory: proves that a key is absent.

It never decides that a message is a duplicate: SQL does (`confirm_duplicates` where the cache knows
a place, else `find_duplicates`).
"""
