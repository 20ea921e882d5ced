"""Tests of groupwise.losses."""
