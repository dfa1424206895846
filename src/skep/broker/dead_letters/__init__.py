"""Messages that a group gave up on: list, delete, push again once."""
