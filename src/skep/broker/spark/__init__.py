"""What the broker shows of work on Spark: pipelines, archive, analytics. It runs none of it."""
