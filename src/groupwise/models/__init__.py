"""A causal language model as the learner sees it: where it comes from, and how it reads packs and padded rows.

What a run file may name as its model is declared without torch, which is loaded when a model is opened."""

from __future__ import annotations

from groupwise.models.pretrained import PretrainedModel
from groupwise.models.tiny import TinyModel
from groupwise.parts.part import Part

CATALOGUE: dict[str, dict[str, type[Part]]] = {"model": {"tiny": TinyModel, "pretrained": PretrainedModel}}
"""Slot -> kind -> class."""
