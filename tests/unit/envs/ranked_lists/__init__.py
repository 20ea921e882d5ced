"""Tests of groupwise.envs.ranked_lists."""
