"""Explaining one number: of a step, of a token, derived a second time by hand."""
