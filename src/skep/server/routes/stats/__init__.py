"""Charts, status, metrics and the live figures of the dashboard."""
