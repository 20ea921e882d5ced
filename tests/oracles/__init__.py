"""Slow loops written from the papers; they share no code with the library they judge.

"numbers, RLOO" is the section RLOO of conformance/numbers.md.
"""
