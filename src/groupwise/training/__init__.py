"""Learning: the learner, the loop, checkpoints, evaluation. No method is named here; parts put numbers on tokens."""
