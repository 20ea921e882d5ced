"""The tests of groupwise; run pytest from the root of the repository."""
