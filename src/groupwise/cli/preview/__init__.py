"""`groupwise preview`."""
