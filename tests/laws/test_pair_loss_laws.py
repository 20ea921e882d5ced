"""Laws of losses over pairs of rollouts and of steps: micro-batches, order and masked tokens change nothing."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.samples import Pair, Totals
from groupwise.learner.local import merge_summaries
from groupwise.methods.dpo import Dpo
from groupwise.methods.p3o import P3o
from groupwise.methods.rpo import Rpo
from groupwise.methods.simpo import Simpo
from groupwise.methods.step_apo import StepApo
from tests.oracles import pair_losses as oracle
from tests.oracles.losses import Token
from tests.oracles.token_batches import GARBAGE, columns_of, random_update, totals_of

CASES: dict[str, tuple[Any, oracle.PairOracle, str]] = {
    "simpo": (Simpo(beta=3.0, margin=0.2), partial(oracle.simpo, beta=3.0, margin=0.2), "weight"),
    "dpo": (Dpo(beta=0.4), partial(oracle.dpo, beta=0.4), "weight"),
    "dpo per pair": (
        Dpo(beta=0.4, reference=False, per="pair"),
        partial(oracle.dpo, beta=0.4, reference=False),
        "pair",
    ),
    "rpo": (Rpo(beta=0.4, eta=0.3), partial(oracle.rpo, beta=0.4, eta=0.3), "weight"),
    "step_apo": (StepApo(beta=0.4, alpha=1.5), partial(oracle.step_apo, beta=0.4, alpha=1.5), "weight"),
} | {
    f"p3o {clip}": (
        P3o(clip=clip, width=0.2, joint_width=0.3),
        partial(oracle.p3o, clip=clip, width=0.2, joint_width=0.3),
        "weight",
    )
    for clip in ("separate", "joint", "none")
}
every_case = pytest.mark.parametrize("name", CASES)


@dataclasses.dataclass(frozen=True)
class Paired:
    """Tokens of an update, near their old policy or exactly there, and pairs of its trajectories and of their steps."""

    tokens: list[Token]
    pairs: list[Pair]
    seed: int


def draw_paired(seed: int) -> Paired:
    rng = random.Random(seed)
    moved = rng.choice([0.0, 1.0, 1.0])  # 0: the policy is still the old one and the reference, as where a run starts
    tokens = [
        dataclasses.replace(
            token, old=token.logp - moved * rng.gauss(0, 0.2), ref=token.logp - moved * rng.gauss(0, 0.5)
        )
        if token.trains
        else token
        for token in random_update(rng)
    ]
    whole = sorted({(token.trajectory, None) for token in tokens if token.trains})
    steps = sorted({(token.trajectory, token.step) for token in tokens if token.trains})
    pairs = []
    for _ in range(rng.randint(0, 5)):
        members = rng.choice([whole, steps])
        if len(members) > 1:
            (winner, winner_step), (loser, loser_step) = rng.sample(members, 2)
            pairs.append(Pair(winner, loser, rng.uniform(0.1, 2), rng.uniform(0, 2), winner_step, loser_step))
    return Paired(tokens, pairs, seed)


paired_updates = st.integers(0, 10**9).map(draw_paired)


def totals_with(paired: Paired) -> Totals:
    return dataclasses.replace(totals_of(paired.tokens), pair_members=tuple(paired.pairs))


def learn_in_parts(
    loss: Any, paired: Paired, parts: Sequence[Sequence[int]], dtype: torch.dtype = torch.float64
) -> tuple[float, list[float]]:
    """The loss and its slope by each token's log-prob, micro-batch by micro-batch."""
    totals = totals_with(paired)
    columns = [columns_of([paired.tokens[position] for position in part], dtype) for part in parts]
    with torch.no_grad():
        summary = merge_summaries(loss, (loss.first_pass(micro, totals) for micro in columns))
    value, slopes = 0.0, [0.0] * len(paired.tokens)
    for part, micro in zip(parts, columns, strict=True):
        share = loss(micro, totals, summary).loss
        (by_logp,) = torch.autograd.grad(share, micro.logp)
        value += float(share.detach())
        for position, slope in zip(part, by_logp.tolist(), strict=True):
            slopes[position] = slope
    return value, slopes


def deal_out(rng: random.Random, tokens: Sequence[Token]) -> list[list[int]]:
    """A random split that keeps samples whole, and neither trajectories nor pairs."""
    num = rng.randint(1, 4)
    place = {token.sample: rng.randrange(num) for token in tokens}
    return [[i for i, token in enumerate(tokens) if place[token.sample] == part] for part in range(num)]


def everything(paired: Paired) -> list[list[int]]:
    return [list(range(len(paired.tokens)))]


@every_case
@given(paired=paired_updates)
def test_any_split_gives_the_loss_and_gradient_of_the_oracle(name: str, paired: Paired) -> None:
    loss, term, per = CASES[name]
    value, slopes = oracle.by_oracle(paired.tokens, paired.pairs, term, per=per)
    one_each = [[i for i, t in enumerate(paired.tokens) if t.sample == n] for n in {t.sample for t in paired.tokens}]
    for parts in (everything(paired), one_each or [[]], deal_out(random.Random(paired.seed), paired.tokens)):
        for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
            total, by_logp = learn_in_parts(loss, paired, parts, dtype)
            assert total == pytest.approx(value, rel=bound, abs=bound)
            assert by_logp == pytest.approx(slopes, rel=bound, abs=bound)


@every_case
@given(paired=paired_updates)
def test_what_a_masked_token_holds_changes_not_one_bit(name: str, paired: Paired) -> None:
    rng, loss = random.Random(paired.seed), CASES[name][0]
    fields = ("logp", "old", "behaviour", "ref", "entropy", "advantage")
    other = [
        token if token.trains else dataclasses.replace(token, **{field: rng.choice(GARBAGE) for field in fields})
        for token in paired.tokens
    ]
    before = learn_in_parts(loss, paired, everything(paired))
    assert before == learn_in_parts(loss, dataclasses.replace(paired, tokens=other), everything(paired))
    assert math.isfinite(before[0])
    assert all(slope == 0.0 for slope, token in zip(before[1], paired.tokens, strict=True) if not token.trains)


@every_case
@given(paired=paired_updates)
def test_the_gradient_is_that_of_finite_differences(name: str, paired: Paired) -> None:
    """But for the joint weight of P3O, through which none runs, and for its kinks, which are rarely met."""
    loss, trained = CASES[name][0], [i for i, token in enumerate(paired.tokens) if token.trains]
    if name in ("p3o joint", "p3o none") or not trained:
        return
    place = random.Random(paired.seed).choice(trained)
    _, slopes = learn_in_parts(loss, paired, everything(paired))
    around = []
    for shift in (-1e-5, 0.0, 1e-5):
        token = paired.tokens[place]
        moved = [*paired.tokens]
        moved[place] = dataclasses.replace(token, logp=token.logp + shift)
        around.append(learn_in_parts(loss, dataclasses.replace(paired, tokens=moved), everything(paired))[0])
    left, right = (around[1] - around[0]) / 1e-5, (around[2] - around[1]) / 1e-5
    assert min(left, right) - 1e-3 <= slopes[place] <= max(left, right) + 1e-3
