"""What a broker does with jobs: JSON in and out for its routes, replays, upkeep while it leads."""
