"""Token ids in, token ids out: the engine protocol, its implementations, and where models come from."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.engines.pretrained import PretrainedModel
from groupwise.engines.tiny import TinyModel

MODELS: dict[str, type[Part]] = {
    "tiny": TinyModel,
    "pretrained": PretrainedModel,
}

__all__ = ["MODELS", "PretrainedModel", "TinyModel"]
