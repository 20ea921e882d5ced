"""ALFWorld's text games."""
