"""Who owns the weights: learners in one process or sharded, optimizers, and how engines get the weights."""

from __future__ import annotations

from groupwise.learner.config import (
    Constant,
    Cosine,
    LearnerConfig,
    Linear,
    ShardedLearnerConfig,
    ValueHead,
    ValueModel,
)
from groupwise.learner.nccl import Nccl
from groupwise.learner.protocol import ClosingLearner, Learned, Learner, LearnerPart, LearnerSlot
from groupwise.learner.weight_sync import Adapter, InMemory, ThroughFile, WeightSync, WeightSyncPart, WeightSyncSlot
from groupwise.parts.part import Part

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "schedule": {"constant": Constant, "linear": Linear, "cosine": Cosine},
    "learner": {"local": LearnerConfig, "sharded": ShardedLearnerConfig},
    "critic": {"value_head": ValueHead, "value_model": ValueModel},
    "weight_sync": {"in_memory": InMemory, "through_file": ThroughFile, "adapter": Adapter, "nccl": Nccl},
}
