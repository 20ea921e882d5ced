"""Worlds whose texts hide what earlier steps revealed, by a dial."""
