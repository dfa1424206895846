"""Other processes and instances on the same database: wake-ups, changes, leadership.

Everything works without a single notice being received; notices only make it faster. One process
leads (`leadership`) and runs the background duties (`housekeeping`).
"""
