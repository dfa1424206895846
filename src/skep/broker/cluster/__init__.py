"""Other processes and instances on the same database: wake-ups, changes, leadership.

Everything works without a single notice being heard; notices only make it sooner.
"""
