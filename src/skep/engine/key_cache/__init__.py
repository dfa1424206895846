"""The keys that partitions store, in bounded memory: proves that a key is absent.

It never decides that a message is a duplicate: `skep.find_duplicates` does, under the partition's
lock.
"""
