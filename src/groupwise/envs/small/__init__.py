"""Environments that tests, the lab or one method need."""
