"""Prefix-shared training against rows: time, memory, use of the chip and gradients, on recorded rollouts."""
