"""Do the methods learn? `python -m benchmarks.learning`."""
