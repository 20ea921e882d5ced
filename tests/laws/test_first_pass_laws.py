"""Laws of losses with a first pass: micro-batches, order and masked tokens change nothing of a loss over pairs."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.samples import Pair, Totals
from groupwise.learner.local import merge_summaries
from groupwise.losses import TokenColumns
from groupwise.methods.simpo import Simpo
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of, random_update, totals_of


@dataclass(frozen=True)
class Paired:
    """Tokens of an update and the pairs of its trajectories."""

    tokens: list[Token]
    pairs: list[Pair]
    loss: Simpo
    seed: int


def draw_paired(seed: int) -> Paired:
    rng = random.Random(seed)
    tokens = random_update(rng)
    known = sorted({token.trajectory for token in tokens})
    pairs = [Pair(*rng.sample(known, 2), rng.uniform(0.1, 2)) for _ in range(rng.randint(0, 4)) if len(known) > 1]
    return Paired(tokens, pairs, Simpo(beta=rng.uniform(0.5, 8), margin=rng.uniform(0, 1)), seed)


paired_updates = st.integers(0, 10**9).map(draw_paired)


def totals_with(paired: Paired) -> Totals:
    totals = totals_of(paired.tokens)
    trains = [count > 0 for count in totals.trajectory_tokens]
    return dataclasses.replace(
        totals, pair_members=tuple(pair for pair in paired.pairs if trains[pair.winner] and trains[pair.loser])
    )


def columns_in_one_group(tokens: Sequence[Token], dtype: torch.dtype) -> TokenColumns:
    columns = columns_of(tokens, dtype)
    return dataclasses.replace(columns, group=torch.zeros_like(columns.trajectory))


def learn_in_parts(
    paired: Paired, parts: Sequence[Sequence[int]], dtype: torch.dtype = torch.float64
) -> tuple[float, list[float]]:
    """The loss and its slope by each token's log-prob, micro-batch by micro-batch."""
    totals, loss = totals_with(paired), paired.loss
    columns = [columns_in_one_group([paired.tokens[position] for position in part], dtype) for part in parts]
    with torch.no_grad():
        summary = merge_summaries(loss, (loss.first_pass(each, totals) for each in columns))
    value, slopes = 0.0, [0.0] * len(paired.tokens)
    for part, each in zip(parts, columns, strict=True):
        share = loss(each, totals, summary).loss
        (by_logp,) = torch.autograd.grad(share, each.logp)
        value += float(share.detach())
        for position, slope in zip(part, by_logp.tolist(), strict=True):
            slopes[position] = slope
    return value, slopes


def by_oracle(paired: Paired) -> tuple[float, list[float]]:
    """The formula over the whole batch at once, pair by pair, with autograd."""
    totals = totals_with(paired)
    logp = [torch.tensor(token.logp, dtype=torch.float64, requires_grad=True) for token in paired.tokens]
    terms = []
    for pair in totals.pair_members:
        means = [
            torch.stack([x for x, t in zip(logp, paired.tokens, strict=True) if t.trains and t.trajectory == n]).mean()
            for n in (pair.winner, pair.loser)
        ]
        gap = paired.loss.beta * (means[0] - means[1] - paired.loss.margin)
        terms.append(-pair.weight * torch.nn.functional.logsigmoid(gap))
    if not terms:
        return 0.0, [0.0] * len(logp)
    value = torch.stack(terms).sum() / sum(pair.weight for pair in totals.pair_members)
    value.backward()
    return float(value.detach()), [0.0 if x.grad is None else float(x.grad) for x in logp]


def deal_out(rng: random.Random, tokens: Sequence[Token]) -> list[list[int]]:
    """A random split that keeps samples whole, and neither trajectories nor pairs."""
    num = rng.randint(1, 4)
    place = {token.sample: rng.randrange(num) for token in tokens}
    return [[i for i, token in enumerate(tokens) if place[token.sample] == part] for part in range(num)]


@given(paired=paired_updates)
def test_any_split_gives_the_loss_and_gradient_of_the_oracle(paired: Paired) -> None:
    rng = random.Random(paired.seed)
    value, slopes = by_oracle(paired)
    for parts in ([list(range(len(paired.tokens)))], deal_out(rng, paired.tokens), deal_out(rng, paired.tokens)):
        for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
            total, by_logp = learn_in_parts(paired, parts, dtype)
            assert total == pytest.approx(value, rel=bound, abs=bound)
            assert by_logp == pytest.approx(slopes, rel=bound, abs=bound)


@given(paired=paired_updates)
def test_the_order_of_tokens_does_not_matter(paired: Paired) -> None:
    order = random.Random(paired.seed).sample(range(len(paired.tokens)), len(paired.tokens))
    shuffled = dataclasses.replace(paired, tokens=[paired.tokens[position] for position in order])
    everything = [list(range(len(order)))]
    value, slopes = learn_in_parts(paired, everything)
    total, by_logp = learn_in_parts(shuffled, everything)
    assert total == pytest.approx(value, abs=1e-10)
    assert by_logp == pytest.approx([slopes[position] for position in order], abs=1e-10)


@given(paired=paired_updates)
def test_winner_and_loser_pull_with_equal_force(paired: Paired) -> None:
    """Each trajectory's slope is spread evenly over its tokens, and all slopes sum to zero."""
    _, slopes = learn_in_parts(paired, [list(range(len(paired.tokens)))])
    assert sum(slopes) == pytest.approx(0.0, abs=1e-9)
    for number in {token.trajectory for token in paired.tokens}:
        own = [s for s, t in zip(slopes, paired.tokens, strict=True) if t.trains and t.trajectory == number]
        assert own == pytest.approx(own[:1] * len(own))
