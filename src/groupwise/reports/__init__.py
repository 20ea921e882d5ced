"""Reading what was recorded: audit rollouts, find faults in them, explain one number, make the page of a run."""
