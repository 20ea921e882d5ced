"""Learners with a critic, and samples with targets, for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from groupwise.data.samples import Sample, ValueTargets
from groupwise.learner.config import LearnerConfig, ValueHead, ValueModel
from groupwise.learner.local import LocalLearner
from groupwise.losses import PolicyLoss
from tests.unit.learner.learners import tiny

KINDS: dict[str, type[ValueHead]] = {"value_head": ValueHead, "value_model": ValueModel}


def open_learner(critic: ValueHead | None, model: Any = None, **config: Any) -> LocalLearner:
    settings = LearnerConfig(**{"learning_rate": 1e-2, **config})
    return LocalLearner(model or tiny()[0], PolicyLoss(), settings, critic=critic)


def with_targets(samples: Sequence[Sample], *, by: str = "token", seed: int = 0, old: float = 0.0) -> list[Sample]:
    """The samples with returns at random, and recorded values that lie up to `old` from 0."""
    rng = random.Random(seed)
    targeted = []
    for sample in samples:
        num = len(sample.response_ids) if by == "token" else 1
        values, returns = (tuple(rng.uniform(-size, size) for _ in range(num)) for size in (old, 1.0))
        targeted.append(replace(sample, targets=ValueTargets(values=values, returns=returns)))
    return targeted


def trunk_of(made: LocalLearner) -> Any:
    assert made._critic is not None
    return made._critic.forward.model


def head_of(made: LocalLearner) -> torch.nn.Linear:
    assert made._critic is not None
    return made._critic.head


def compute_values(trunk: Any, head: torch.nn.Linear, sample: Sample, *, by: str = "token") -> torch.Tensor:
    """The values of one sample by the model's own forward pass, on its tokens alone."""
    hidden = trunk.model(input_ids=torch.tensor([sample.token_ids])).last_hidden_state[0]
    first = len(sample.prompt_ids) - 1
    places = range(first, len(sample.token_ids) - 1) if by == "token" else range(first, first + 1)
    return torch.stack([head(hidden[place])[0] for place in places])
