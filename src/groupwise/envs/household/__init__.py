"""A text home in ALFWorld's protocol."""
