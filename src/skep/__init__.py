"""Skep: a partitioned message broker, durable job chains and a data pipeline on PostgreSQL."""

__version__ = "0.1.0"
