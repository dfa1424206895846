"""The archive: an Iceberg table that holds what the log held, copied before anything is deleted."""
