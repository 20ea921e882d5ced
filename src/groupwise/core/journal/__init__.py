"""The journal of a run: one SQLite file that report, replay and resume read."""
