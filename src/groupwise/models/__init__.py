"""Causal language models for the learner: loading them, and running them on packs and padded rows.

The models of a run file are declared without torch, which is imported when a model is opened."""

from __future__ import annotations

from groupwise.models.pretrained import PretrainedModel
from groupwise.models.tiny import TinyModel
from groupwise.parts.part import Part

CATALOGUE: dict[str, dict[str, type[Part]]] = {"model": {"tiny": TinyModel, "pretrained": PretrainedModel}}
