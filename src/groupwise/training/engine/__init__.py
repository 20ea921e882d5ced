"""The engine of a run: its settings, what the run needs of it, and the check before training."""
