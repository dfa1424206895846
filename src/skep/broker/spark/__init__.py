"""What the broker shows of work on Spark: archive, pipelines, analytics. It runs none of it."""
