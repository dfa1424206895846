"""What commands share: the broker they talk to, flags, output, pages, exit codes."""
