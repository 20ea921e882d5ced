"""Evaluations on fixed tasks, and what can be concluded from them."""
