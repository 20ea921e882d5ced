"""Worlds that run on Java: ScienceWorld and TextWorldExpress."""
