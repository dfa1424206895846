"""Commands on messages: push, pop, ack, tail, transactions, dead letters, traces."""
