"""What the leader removes in the background, in bounded steps, and what holds keep."""
