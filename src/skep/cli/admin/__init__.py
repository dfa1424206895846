"""Commands for operators: queues, partitions, groups, apply, top, maintenance."""
