"""Keys and values: small state beside the messages, changed under conditions.

A client's call is a batch of operations and one commit. `operations` says what a call may contain
(pure); `accept` lets it into the engine; `execute` carries out the calls of many clients at once;
`answer` renders what became of them; `browse` lists namespaces and keys, and sweeps. It imports the
engine and the database access, nothing else of the broker.
"""
