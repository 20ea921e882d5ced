"""Worlds behind an OpenEnv server."""
