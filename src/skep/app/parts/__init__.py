"""The parts of one broker, built by topic and joined in `broker`."""
