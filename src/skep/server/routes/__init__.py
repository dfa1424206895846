"""All routes that are not hot, by topic. A handler decodes, asks the broker and encodes."""
