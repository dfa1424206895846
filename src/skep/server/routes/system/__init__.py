"""Account, health, cluster, maintenance, operations and retention."""
