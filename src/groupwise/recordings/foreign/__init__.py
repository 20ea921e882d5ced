"""Readers of rollouts that other programs recorded."""
