"""Processes that give up their rights, and end with their parent."""
