"""Acks and pushes that happen together or not at all; the cycles of Queen's streams are such.

`settlement` turns them into rows and runs them in one call, which a repeated request finds again.
"""
