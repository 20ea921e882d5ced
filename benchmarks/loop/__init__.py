"""Rollouts a second, end to end, against TRL's GRPOTrainer on a CPU, and where our time goes."""
