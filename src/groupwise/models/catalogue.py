"""Where models come from, by kind."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.models.pretrained import PretrainedModel
from groupwise.models.tiny import TinyModel

MODELS: dict[str, type[Part]] = {
    "tiny": TinyModel,
    "pretrained": PretrainedModel,
}
