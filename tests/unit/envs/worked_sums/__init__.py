"""Tests of groupwise.envs.worked_sums."""
