"""Reading a run's folder: what was trained, what came of it, and every attempt with its credit."""
