"""Messages in the log: lists, single messages, and the envelopes they are stored in."""
