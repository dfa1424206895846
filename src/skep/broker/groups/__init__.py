"""Consumer groups: progress and lag, seek, subscription, pause, deletion."""
