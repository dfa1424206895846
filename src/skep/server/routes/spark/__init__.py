"""Archive coverage, analytics, pipelines and replays."""
