"""Store messages: once each, in the order they came, all items answered.

`accept` sorts the items of a `request` by partition into pending writes and hands them to the
engine. `execute` stores a batch: it takes out repeats within the batch and duplicates the cache
knows (once the database confirms them), applies the queues' `rules` and `size_limit`, and calls
SQL, which decides about what others stored meanwhile under the partition's lock. `stored_keys`
fills the cache before.
"""
