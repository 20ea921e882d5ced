"""Numbers with a provenance: what a method must give on a small, written-down table.

"numbers, RLOO" is the section RLOO of conformance/numbers.md, where they are worked out.
"""
