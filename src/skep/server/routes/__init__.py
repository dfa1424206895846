"""All routes that are not hot. A handler decodes, asks the broker and encodes.

A module per topic. `section` says how a route is declared, `parameters` has what many routes take.
"""
