"""Messages in the log: lists, single messages, traces, and the envelopes they are stored in."""
