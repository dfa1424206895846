"""Benchmarks and fault campaigns of the data source for Spark.

    python -m benchmarks.spark

`bench` compares it with Spark's JDBC source, `scaling` one executor with two. `late_commits` and
`faults` kill readers, writers and servers, and account for every message.
"""
