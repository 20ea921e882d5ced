"""Which optimiser the settings of a learner ask for, and what it keeps of each weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from groupwise.training.learner.config import LearnerConfig
from groupwise.training.learner.eight_bit import check_torchao
from groupwise.training.learner.lean_adamw import LeanAdamW, Plan


@dataclass(frozen=True, kw_only=True)
class AdamNumbers:
    """What AdamW steps with."""

    learning_rate: float
    """Step size, until somebody sets another."""
    betas: tuple[float, float]
    """Decay of the moments."""
    eps: float
    """Added to the root of the second moment."""
    weight_decay: float
    """Decoupled weight decay."""


def open_optimiser(
    weights: Mapping[str, nn.Parameter], config: LearnerConfig, numbers: AdamNumbers
) -> torch.optim.Optimizer:
    """AdamW in the form that a learner's settings ask for, over weights by name."""
    steps: Any = {
        "lr": numbers.learning_rate,
        "betas": numbers.betas,
        "eps": numbers.eps,
        "weight_decay": numbers.weight_decay,
    }
    is_narrow = any(value.dtype.itemsize < 4 for value in weights.values())
    if config.optimiser == "adamw" and not is_narrow:
        # One pass over the weights instead of one an operation: a fifth of the time on a CPU.
        return torch.optim.AdamW(weights.values(), **steps, fused=True)
    if config.optimiser == "adamw_8bit":
        check_torchao()
    return LeanAdamW(
        weights,
        **steps,
        moments="8_bit" if config.optimiser == "adamw_8bit" else "float32",
        keeps_masters=config.bfloat16_weights == "float32_masters",
    )


def plan_state(optimiser: torch.optim.Optimizer | None, value: torch.Tensor) -> Plan:
    """Shape and type of what an optimiser keeps of a weight once it has stepped; None = torch's AdamW."""
    if isinstance(optimiser, LeanAdamW):
        return optimiser.plan_state(value)
    return {
        "step": (torch.Size([]), torch.float32),
        "exp_avg": (value.shape, value.dtype),
        "exp_avg_sq": (value.shape, value.dtype),
    }
