"""Tests of worlds that hide what was revealed before."""
