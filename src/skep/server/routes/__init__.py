"""All routes that are not hot. A handler decodes, asks the broker and encodes.

Packages group them by what people administer: queues (with groups), messages, stats, jobs, spark
and system (health, maintenance, operations, retention, cluster).
"""
