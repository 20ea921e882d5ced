"""Tests of groupwise.recipes."""
