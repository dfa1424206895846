"""What happened in each hour, from both tiers, and reports on it."""
