"""Commands that run on Spark: archive, pipeline, replay, import and export, analytics."""
