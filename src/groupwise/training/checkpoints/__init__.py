"""Checkpoints: written whole or not at all, checked by digests, and resumed from."""
