"""Commands for operators: queues, partitions, groups, apply, top, and the broker itself."""
