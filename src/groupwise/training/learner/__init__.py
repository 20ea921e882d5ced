"""Learners: who owns the weights of a run and changes them. Named without torch: run files decode without it."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.training.learner.config import LearnerConfig
from groupwise.training.learner.protocol import Learned, Learner, LearnerPart, LearnerSlot

LEARNERS: dict[str, type[Part]] = {
    "local": LearnerConfig,
}

__all__ = ["LEARNERS", "Learned", "Learner", "LearnerConfig", "LearnerPart", "LearnerSlot"]
