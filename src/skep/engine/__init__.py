"""Request fusion: many clients' requests in few procedure calls."""
