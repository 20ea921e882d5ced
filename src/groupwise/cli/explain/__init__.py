"""`groupwise explain`."""
