"""All other routes, by topic. A handler decodes, asks one part of the broker and encodes."""
