"""What a model or a judge says of attempts before credit is given: measures."""

from __future__ import annotations

from groupwise.rollout.measures.scores import (
    JudgedSegments,
    JudgeScore,
    ReferenceScore,
    ResponseEmbedding,
    read_response_states,
)
from groupwise.rollout.measures.tools import NEEDS, Continuation, Tools

__all__ = [
    "NEEDS",
    "Continuation",
    "JudgeScore",
    "JudgedSegments",
    "ReferenceScore",
    "ResponseEmbedding",
    "Tools",
    "read_response_states",
]
