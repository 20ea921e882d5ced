"""`groupwise audit`."""
