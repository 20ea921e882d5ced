"""The conformance suite for engines."""
