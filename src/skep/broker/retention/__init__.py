"""The leader removes old messages and records in the background, in bounded steps.

`housekeeping` runs the duties in `retention`; `holds` keep what external readers need, `history`
shows what was removed.
"""
