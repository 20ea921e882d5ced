"""Tests of groupwise.advantages."""
