"""Learning: the learner, the loop, checkpoints, evaluation. No method is named here; parts put numbers on tokens."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.training.schedules import Constant, Cosine, Linear

SCHEDULES: dict[str, type[Part]] = {
    "constant": Constant,
    "linear": Linear,
    "cosine": Cosine,
}

__all__ = ["SCHEDULES", "Constant", "Cosine", "Linear"]
