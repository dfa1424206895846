"""What commands share: the connection to a broker, options, output, listings, exit codes."""
