"""Messages for later: all that wait, for operators, and timers, which have keys of their own."""
