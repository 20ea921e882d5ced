"""Ranked lists: things in the order of how well they fit a wish, scored item by item."""
