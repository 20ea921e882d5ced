"""`groupwise doctor`."""
