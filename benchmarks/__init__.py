"""Measurements: each script compares a speed with a named alternative in one run and can write its result as JSON."""
