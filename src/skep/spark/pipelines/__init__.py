"""Pipelines: declared queries from queues to queues and tables, run with their state on record."""
