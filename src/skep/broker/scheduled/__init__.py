"""Messages that wait for their time outside the log.

`accept` stores them, `sequence` appends them when they are due, `listing` shows and cancels them.
"""
