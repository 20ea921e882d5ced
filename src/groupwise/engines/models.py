"""Where models come from, by kind."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.engines.pretrained import PretrainedModel
from groupwise.engines.tiny import TinyModel

MODELS: dict[str, type[Part]] = {
    "tiny": TinyModel,
    "pretrained": PretrainedModel,
}
