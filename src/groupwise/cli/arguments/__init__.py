"""What commands are given: algorithms by name, folders of runs, and whether what a run names may be loaded."""
