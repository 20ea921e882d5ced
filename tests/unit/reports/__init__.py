"""Tests of groupwise.reports."""
