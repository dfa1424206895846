"""Messages on this machine's disk, for as long as PostgreSQL cannot take them."""
