"""Record what consumers did with the messages they hold, and renew their leases.

The order of a batch never matters, and a stale lease is an outcome of its item alone.
"""
