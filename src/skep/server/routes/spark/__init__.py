"""Analytics, pipelines with the archive, and replays."""
