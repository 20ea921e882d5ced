"""Learners: who owns the weights of a run and changes them. Named without torch: run files decode without it."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.training.learner.config import LearnerConfig
from groupwise.training.learner.protocol import ClosingLearner, Learned, Learner, LearnerPart, LearnerSlot
from groupwise.training.learner.sharded.config import ShardedLearnerConfig

LEARNERS: dict[str, type[Part]] = {
    "local": LearnerConfig,
    "sharded": ShardedLearnerConfig,
}

__all__ = [
    "LEARNERS",
    "ClosingLearner",
    "Learned",
    "Learner",
    "LearnerConfig",
    "LearnerPart",
    "LearnerSlot",
    "ShardedLearnerConfig",
]
