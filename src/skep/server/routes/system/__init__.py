"""Health, settings, maintenance, operations, retention, and what instances tell each other."""
