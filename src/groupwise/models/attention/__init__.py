"""Attention over packs: each token sees its ancestors only, by the fastest exact way that a device has."""
