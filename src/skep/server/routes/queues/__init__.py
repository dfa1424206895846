"""Queues, partitions and consumer groups: list, configure, seek, delete."""
