"""The log as a Spark source: planning, positions, batch and stream readers, both tiers."""
