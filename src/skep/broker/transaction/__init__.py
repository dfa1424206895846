"""Acks and pushes that happen together or not at all, also for the cycles of Queen's streams.

`settlement` turns them into rows and runs them in one call, which a repeated request finds again.
It carries out deferred operations, too.
"""
