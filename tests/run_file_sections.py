"""Sections of run files that several tests share."""

from __future__ import annotations

TINY_WORD_WORLD = """
[env]
kind = "identity"
num_words = 4
length = 1

[model]
kind = "tiny"
hidden = 16
layers = 1
"""
"""One word of four to repeat, and a model that is made in milliseconds; a test adds what it is about."""
