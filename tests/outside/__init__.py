"""Packages outside the tree that add to groupwise from a run file alone."""
