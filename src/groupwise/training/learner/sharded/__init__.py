"""A learner whose weights are spread over several processes: rank 0 leads the run, the others follow it."""
