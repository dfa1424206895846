"""Commands on job chains, and the worker."""
