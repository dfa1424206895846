"""Messages that a group gave up on: list, delete, push again exactly once."""
