"""Single messages and lists of them: find, show, trace, delete."""
