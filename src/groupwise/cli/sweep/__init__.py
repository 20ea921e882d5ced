"""`groupwise sweep`."""
