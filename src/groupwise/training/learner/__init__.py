"""Learners: who owns the weights of a run and changes them. Named without torch: run files decode without it."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.training.learner.protocol import Learned, Learner, LearnerPart, LearnerSlot
from groupwise.training.learner_config import LearnerConfig

LEARNERS: dict[str, type[Part]] = {
    "local": LearnerConfig,
}

__all__ = ["LEARNERS", "Learned", "Learner", "LearnerConfig", "LearnerPart", "LearnerSlot"]
