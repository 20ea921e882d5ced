"""Tests of groupwise.groups."""
