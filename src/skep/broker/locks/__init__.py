"""Locks and semaphores: leases of permits with fencing tokens, and waiters in order.

A permit is a key of the namespace `queen-locks` and its token the version of that key, so locks
need no table and no function of their own: every operation is a call on keys. `operations` says
what a call may contain and `decide` what the keys of a lock mean (both pure); `hold` carries
operations out; `wait` lets acquirers wait in order. It imports keys and values, and wake-ups.
"""
