"""Consumer groups: lag, seek, subscription, pause, removal."""
