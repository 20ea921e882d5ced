"""The conformance suite for environments."""
