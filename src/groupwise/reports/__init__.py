"""Reading what was recorded: audit it, explain one number, find faults of identity."""
