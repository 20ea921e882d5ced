"""Where training starts, the gradient of every loss is the slope of its value, from both sides.

At the first optimizer step the policy, the old policy, the engine and the reference are the same. So ratios are exactly
1, log-ratios and preference margins exactly 0, and `clamp`, `abs` and `maximum` may be exactly on their bound. There
autograd picks one side or halves the slope, even if the function has no kink. Random numbers never show this.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from groupwise.data.samples import Pair
from groupwise.losses import Clip, OffPolicyMask, TokenColumns
from groupwise.methods.after_etr import ElasticClip
from groupwise.methods.llds import Llds
from groupwise.methods.p3o import P3o
from groupwise.methods.reg_grpo import Regression
from groupwise.parts.part import Part
from groupwise.training.loss_context import get_declared
from tests.equivalence.catalogue_losses import list_losses, list_losses_at_zero
from tests.equivalence.stopped_gradients import HoldingConstants, find_stop
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of, totals_of

SHIFT = 1e-6
FLAT = 1e-5
"""Two one-sided slopes that differ by less belong to a smooth function: its curvature times the shift."""
ROUNDING = 1e-7
JUMP = 1e3
"""A difference quotient beyond this is that of a value that jumps, which has no slope there."""

ADVANTAGES = (0.0, 1.0, -1.0, 0.6)
"""Of each trajectory."""
PAIRS = (Pair(0, 1, 0.5, 0.4), Pair(2, 3, 1.0, 0.3), Pair(1, 2, 0.75, 0.6, 0, 1), Pair(3, 0, 1.0, 0.2, 1, 1))

LOSSES: dict[str, Any] = {
    name: loss
    for name, loss in (list_losses() | list_losses_at_zero()).items()
    if not (isinstance(loss, P3o) and loss.clip != "separate")
}
"""All but two forms of P3O, whose value moves with a constant of the first pass. tests/laws/test_pair_loss_laws.py
compares these with their oracle, at the start too."""

KINKS: dict[str, tuple[Callable[[Part], bool], Callable[[float], bool]]] = {
    "a trajectory that is not blamed is pulled as soon as it becomes less likely": (
        lambda part: isinstance(part, Llds) and part.weight > 0,
        lambda advantage: advantage >= 0,
    ),
    "the ratio 1 is the upper bound": (
        lambda part: isinstance(part, Clip | ElasticClip) and part.high == 0,
        lambda advantage: advantage > 0,
    ),
    "the ratio 1 is the lower bound": (
        lambda part: isinstance(part, Clip | ElasticClip) and part.low == 0,
        lambda advantage: advantage < 0,
    ),
    "a token with a negative advantage is dropped as soon as it becomes less likely": (
        lambda part: isinstance(part, OffPolicyMask) and part.max_drop == 0,
        lambda advantage: advantage < 0,
    ),
    "log-ratios are divided by their standard deviation, which is 0": (
        lambda part: isinstance(part, Regression) and part.floor == 0,
        lambda advantage: True,
    ),
}
"""Which losses have a kink or a jump exactly where training starts, and at tokens of which advantage."""


@dataclass(frozen=True)
class Slope:
    """What autograd says of one number that the loss differentiates, and what small shifts say."""

    by: str
    advantage: float
    gradient: float
    left: float
    right: float

    @property
    def is_smooth(self) -> bool:
        return abs(self.left - self.right) < FLAT


@functools.cache
def list_tokens() -> list[Token]:
    """Four trajectories of two steps of two tokens, under one policy."""
    rng = random.Random("the start")
    tokens = []
    for place in range(16):
        logp, entropy, trajectory = -rng.uniform(0.01, 3.0), rng.uniform(0.0, 2.0), place // 4
        tokens.append(
            Token(
                logp=logp,
                old=logp,
                behaviour=logp,
                ref=logp,
                entropy=entropy,
                advantage=ADVANTAGES[trajectory],
                trains=True,
                sample=place // 2,
                step=place // 2 % 2,
                trajectory=trajectory,
                span=place % 2,
            )
        )
    return tokens


def make_columns(loss: Any) -> TokenColumns:
    """The tokens as columns, with whatever the loss reads: numbers from 0 to 1, one per trajectory."""
    columns = columns_of(list_tokens())
    numbers = (columns.trajectory * 3 % 7).double() / 6
    return replace(
        columns,
        group=torch.zeros_like(columns.trajectory),
        named=dict.fromkeys(get_declared(loss, "columns"), numbers),
        channels=dict.fromkeys(get_declared(loss, "channels"), numbers),
    )


@functools.cache
def measure(name: str) -> list[Slope]:
    """The slopes of a loss by each log-prob and, if the loss reads it, by each entropy."""
    loss, tokens = LOSSES[name], list_tokens()
    columns, totals = make_columns(loss), replace(totals_of(tokens), pair_members=PAIRS)
    held = HoldingConstants(loss) if find_stop(loss) and not hasattr(loss, "first_pass") else loss

    def lose(columns: TokenColumns) -> torch.Tensor:
        with torch.no_grad():
            summary = (loss.first_pass(columns, totals),) if hasattr(loss, "first_pass") else ()
        return held(columns, totals, *summary).loss  # type: ignore[no-any-return]

    value = lose(columns)
    gradients = torch.autograd.grad(value, (columns.logp, columns.entropy), allow_unused=True)  # type: ignore[arg-type]
    slopes = []
    for by, gradient in zip(("logp", "entropy"), gradients, strict=True):
        if gradient is None:
            continue
        for place, token in enumerate(tokens):
            values = [float(value.detach())] * 2
            for side, shift in enumerate((-SHIFT, SHIFT)):
                moved = getattr(columns, by).detach().clone()
                moved[place] += shift
                values[side] = float(lose(replace(columns, **{by: moved})).detach())
            left, right = (float(value.detach()) - values[0]) / SHIFT, (values[1] - float(value.detach())) / SHIFT
            slopes.append(Slope(by, token.advantage, float(gradient[place]), left, right))
    return slopes


def expect_kink(name: str, slope: Slope) -> bool:
    return slope.by == "logp" and any(
        has_kink(part) and is_there(slope.advantage)
        for has_kink, is_there in KINKS.values()
        for part in LOSSES[name].parts()
    )


@pytest.mark.parametrize("name", LOSSES)
def test_at_the_start_the_gradient_is_the_slope_from_both_sides(name: str) -> None:
    """At a kink it lies between the two, and there are kinks and jumps only where `KINKS` says so."""
    for slope in measure(name):
        low, high = sorted((slope.left, slope.right))
        if max(-low, high) < JUMP:
            assert low - ROUNDING <= slope.gradient <= high + ROUNDING, slope
        assert slope.is_smooth != expect_kink(name, slope), slope


def test_nearly_all_slopes_are_smooth_at_the_start() -> None:
    """2,244 of 2,336, of which 1,854 are not 0, when this was written. Without bounds at 0, all but 36 of LLDS."""
    slopes = [slope for name in LOSSES for slope in measure(name)]
    smooth = [slope for slope in slopes if slope.is_smooth]
    assert len(slopes) > len(list_tokens()) * len(LOSSES)  # entropies too
    assert len(smooth) > 0.9 * len(slopes)
    assert sum(slope.gradient != 0 for slope in smooth) > 0.7 * len(slopes)
