"""Every metric of a run: its meaning, and how it is computed from an update's attempts, credit and losses."""
