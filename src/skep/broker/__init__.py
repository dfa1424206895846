"""What the broker does: push, pop, ack, leases, parking, wake-ups."""
