"""Run and examine a broker: serve, migrate, config, openapi, doctor, bench."""
