"""BFCL's multi-turn tool use."""
