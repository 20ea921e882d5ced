"""Slow loops written from the papers; they share no code with the library they judge."""
