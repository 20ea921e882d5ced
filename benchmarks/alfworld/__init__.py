"""A pretrained model on ALFWorld's real games, before and after learning: `python -m benchmarks.alfworld`."""
