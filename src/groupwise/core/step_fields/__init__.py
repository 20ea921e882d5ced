"""The table of what is recorded of a step, from which all else that spells its fields derives."""
