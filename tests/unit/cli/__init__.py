"""Tests of groupwise.cli."""
