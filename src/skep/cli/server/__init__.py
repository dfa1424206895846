"""Run and examine a broker: serve, migrate, config, doctor, bench."""
