"""What users write: jobs, their types, the context that a handler gets."""
