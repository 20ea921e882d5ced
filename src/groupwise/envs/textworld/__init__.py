"""TextWorld's generated games."""
