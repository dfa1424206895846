"""Queues as operators see them: configuration, listings, depth, ownership, pause, deletion."""
