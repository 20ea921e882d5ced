"""A run before it is paid for: its prompts, what its action rule reads, and what an update takes; without weights."""
