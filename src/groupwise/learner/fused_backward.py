"""Gradients applied as they come: a weight takes its step within the backward pass, and its gradient goes.

So all gradients are never in memory at once. It also means that nothing is known of the whole gradient before weights
change: it cannot be shortened, and cannot be added up over several backward passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from groupwise.learner.config import LearnerConfig
from groupwise.system.errors import ConfigError, TrainingError


class FusedBackwardStep:
    """Steps each weight when its gradient comes; from the first one on that is not finite, none."""

    def __init__(self, weights: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer) -> None:
        self._names: dict[torch.Tensor, str] = {value: name for name, value in weights.items()}
        self._optimiser = optimiser
        self._squares = 0.0
        self.num_stepped = 0
        """Weights that took their step."""
        self.bad: str | None = None
        """The first weight whose gradient was not finite."""

    @property
    def norm(self) -> float:
        return math.sqrt(self._squares)

    def take(self, value: torch.Tensor) -> None:
        """Apply the gradient of a weight, the only one that is there, and let it go."""
        assert value.grad is not None, "autograd calls it when a gradient is there"
        length = float(measure_length(value.grad))
        if self.bad is None and math.isfinite(length):
            self._optimiser.step()
            self._squares += length**2
            self.num_stepped += 1
        elif self.bad is None:
            self.bad = self._names[value]
        value.grad = None


def measure_length(gradient: torch.Tensor) -> torch.Tensor:
    """The length of a gradient in float32, also of one that is narrower."""
    length: torch.Tensor = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
    return length


@contextmanager
def apply_as_they_come(
    weights: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer
) -> Iterator[FusedBackwardStep]:
    coming = FusedBackwardStep(weights, optimiser)
    hooks = [value.register_post_accumulate_grad_hook(coming.take) for value in weights.values()]
    try:
        yield coming
    finally:
        for hook in hooks:
            hook.remove()


def check_clipping_is_off(weights: Mapping[str, nn.Parameter], config: LearnerConfig) -> None:
    if config.apply_gradients == "as_they_come" and config.max_grad_norm != "off":
        raise ConfigError(
            f"training.learner.apply_gradients: 'as_they_come' cannot shorten gradients to {config.max_grad_norm:g}, "
            f"since their length is known only once all are there, which takes {describe_gradients(weights)}; set "
            "max_grad_norm = 'off', or apply_gradients = 'together'"
        )


def check_single_passes(weights: Mapping[str, nn.Parameter], config: LearnerConfig, num_passes: int) -> None:
    if config.apply_gradients == "as_they_come" and num_passes > 1:
        raise TrainingError(
            f"training.learner.apply_gradients: an optimiser step has {num_passes} micro-batches, whose gradients must "
            f"be added up first, which takes {describe_gradients(weights)}; set apply_gradients = 'together', or raise "
            f"token_budget (now {config.token_budget}) or minibatches until a step is one micro-batch"
        )


def describe_gradients(weights: Mapping[str, nn.Parameter]) -> str:
    """How much memory all gradients take, in words.

    >>> describe_gradients({"w": nn.Parameter(torch.zeros(2**28, dtype=torch.bfloat16, device="meta"))})
    '0.50 GiB for the gradients of 268,435,456 weights'
    """
    num = sum(value.numel() for value in weights.values())
    size = sum(value.nbytes for value in weights.values())
    return f"{size / 2**30:.2f} GiB for the gradients of {num:,} weights"
