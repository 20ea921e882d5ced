"""Token ids in, token ids out: the engine protocol, its implementations, and where models come from.

The models, which need torch, are loaded when they are asked for: requests and responses are named without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.core.lazy_names import import_when_asked

if TYPE_CHECKING:
    from groupwise.engines.models import MODELS
    from groupwise.engines.pretrained import PretrainedModel
    from groupwise.engines.tiny import TinyModel

__getattr__ = import_when_asked(
    __name__,
    {
        "MODELS": "groupwise.engines.models:MODELS",
        "PretrainedModel": "groupwise.engines.pretrained:PretrainedModel",
        "TinyModel": "groupwise.engines.tiny:TinyModel",
    },
)

__all__ = ["MODELS", "PretrainedModel", "TinyModel"]
