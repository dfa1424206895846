"""Messages, dead letters, scheduled messages, traces, streams, live delivery and tail."""
