"""Worlds on a grid: a frozen lake, box pushing, Sokoban."""
