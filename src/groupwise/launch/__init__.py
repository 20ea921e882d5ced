"""Commands that a run starts, on this machine or on the nodes of a cluster, and that end with whoever started them."""
