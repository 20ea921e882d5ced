"""`groupwise inspect`."""
