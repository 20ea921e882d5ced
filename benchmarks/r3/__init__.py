"""R^3 where it claims to work: long answers that a limit cuts off. `python -m benchmarks.r3`."""
