"""What operators ask of queues and partitions, and change about them."""
