"""Old messages and records are removed in the background, in bounded steps.

`retention` has the duties, which the leader runs (`broker.cluster.housekeeping`); `holds` keep what
external readers need, `history` shows what was removed.
"""
