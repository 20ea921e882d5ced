"""Tests of groupwise.rewards."""
