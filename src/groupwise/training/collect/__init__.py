"""Where the rollouts of an update come from: sampled now, or ahead of the update."""
