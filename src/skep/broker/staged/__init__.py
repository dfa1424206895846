"""Messages that applications staged in their own transactions.

`read` finds new ones in commit order, `store` applies the rules of the queues and appends them,
`mover` decides when to look.
"""
