"""A causal language model as the learner sees it: where it comes from, and how it reads packs and padded rows.

Everything here needs torch and is loaded when it is asked for, so that run files decode without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.core.lazy_names import import_when_asked

if TYPE_CHECKING:
    from groupwise.models.catalogue import MODELS
    from groupwise.models.pretrained import PretrainedModel
    from groupwise.models.tiny import TinyModel

__getattr__ = import_when_asked(
    __name__,
    {
        "MODELS": "groupwise.models.catalogue:MODELS",
        "PretrainedModel": "groupwise.models.pretrained:PretrainedModel",
        "TinyModel": "groupwise.models.tiny:TinyModel",
    },
)

__all__ = ["MODELS", "PretrainedModel", "TinyModel"]
