"""Numbers with a provenance: what a recipe must give on a small, written-down table."""
