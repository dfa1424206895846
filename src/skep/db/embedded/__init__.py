"""PostgreSQL from a wheel or the system, started and stopped by us."""
