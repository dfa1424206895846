"""The routes of every message: push, pop, ack, renew. Handlers return at once and answer later."""
