"""A worker process: claim, run, settle, renew. It may be killed at any time."""
