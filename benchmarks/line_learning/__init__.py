"""Does credit that tells lines apart learn faster? `python -m benchmarks.line_learning`."""
