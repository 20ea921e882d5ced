"""Sweeps: one run file with several settings and seeds, as a plan of ordinary runs."""
