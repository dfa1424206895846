"""What becomes of requests when there is no room for them: each is answered, in time and in order.

A request that finds no room branches off from `accept` to `fallback`: it waits in line
(`waiting_line`), is stored as operations and answered 202 (`deferral`, carried out by `processor`),
or is refused in time. `shares` (pure) decides which requests give way and keeps their order.
`operations` shows operations to people.
"""
