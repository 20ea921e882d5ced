"""Attempt plans: who is attempted, how often, and with what guidance."""
