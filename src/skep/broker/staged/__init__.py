"""Messages that applications staged in their own transactions.

`read` finds new ones in commit order, `move` applies the rules of the queues and appends them,
`sequence` decides when. Spark's sink has a staging of its own (`skep.spark.sink`).
"""
