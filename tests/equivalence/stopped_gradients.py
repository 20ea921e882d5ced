"""Losses whose gradient is not the slope of their value, on purpose: they stop it at a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from groupwise.losses import EntropyShare, Kl, SequenceRatio
from groupwise.methods.cispo import Cispo
from groupwise.methods.p3o import P3o
from groupwise.methods.rec import Rec
from groupwise.methods.reg_grpo import Regression
from groupwise.parts.part import Part

STOPPED: dict[str, Callable[[Part], bool]] = {
    "the ratio of a unit is a constant beside each token's own": lambda part: isinstance(part, SequenceRatio),
    "an importance weight is a constant": lambda part: (
        isinstance(part, Cispo | EntropyShare) or (isinstance(part, Rec) and part.weighted)
    ),
    "the value of one estimator, the gradient of another": lambda part: (
        isinstance(part, Kl) and part.gradient == "straight_through"
    ),
    "the joint weight of a pair is a constant": lambda part: isinstance(part, P3o) and part.clip != "separate",
    "the deviation that log-ratios are divided by is a constant": lambda part: (
        isinstance(part, Regression) and part.length == "sum"
    ),
}
"""Where a gradient is stopped on purpose, and which part does it: the value then moves otherwise than the gradient
says. A loss with such a part is compared with its constants held; where a first pass holds them, by its oracle alone
(tests/laws/test_pair_loss_laws.py, tests/laws/test_context_loss_laws.py)."""


def find_stop(loss: Part) -> str | None:
    """Why the gradient of this loss is not that of its value; None = it is."""
    return next((why for why, stops in STOPPED.items() if any(stops(part) for part in loss.parts())), None)


class HoldingConstants:
    """A loss that takes for every constant, wherever it is called, what that was when it was called first."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self._constants: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loss, name)

    def __call__(self, *given: Any) -> Any:
        detach, is_first, kept = Tensor.detach, not self._constants, iter([*self._constants])

        def hold(tensor: Tensor) -> Tensor:
            if is_first:
                self._constants.append(detach(tensor).clone())
            return detach(tensor) if is_first else next(kept)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tensor, "detach", hold)
            return self._loss(*given)
