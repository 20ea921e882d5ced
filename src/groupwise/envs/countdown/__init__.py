"""Countdown: make a target from given numbers."""
