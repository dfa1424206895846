"""Commands on messages: push, pop, ack, tail, dead letters, traces, transactions."""
