"""The loss over pairs, worked by hand, and the sums of its first pass."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

from groupwise import RecordError
from groupwise.data.samples import Pair, Totals
from groupwise.losses import PAIRS, TrajectorySums, share_of_step
from groupwise.methods.simpo import Simpo
from tests.unit.losses.token_rows import columns, gradient, number


def count_totals(trajectory: list[int], pairs: list[Pair], group: list[int] | None = None) -> Totals:
    """Totals of tokens that are samples of their own."""
    num = len(trajectory)
    return Totals.count(
        tokens=[1] * num,
        trajectory=trajectory,
        step=list(range(num)),
        group=group or [0] * num,
        max_tokens=4,
        pairs=pairs,
    )


def test_a_pair_worked_by_hand() -> None:
    """Mean log-probs -0.8 (two tokens) and -1.1, beta 2.5, margin 0.55: 2.5 x 0.3 - 1.375 = -0.625, and
    -log sigmoid(-0.625) = log(1 + e^0.625) = 1.053701."""
    tokens = columns([-0.7, -0.9, -1.1], trajectory=[0, 0, 1], sample=[0, 0, 1], group=[0, 0, 0])
    totals = count_totals([0, 0, 1], [Pair(0, 1)])
    loss = Simpo(beta=2.5, margin=0.55)
    result = loss(tokens, totals, loss.first_pass(tokens, totals))
    assert number(result.loss) == pytest.approx(1.053701, abs=1e-6)
    pull = 2.5 / (1 + math.exp(-0.625))
    assert gradient(result.loss, tokens.logp) == pytest.approx([-pull / 2, -pull / 2, pull])
    assert result.metrics["loss/pair_gap"].mean == pytest.approx(0.3)
    assert result.metrics["loss/pair_accuracy"].mean == 1.0


def by_hand(logp_T: Tensor, trajectory: list[int], totals: Totals, loss: Simpo) -> Tensor:
    """The formula over all tokens at once, with autograd."""
    mean = {n: logp_T[[i for i, t in enumerate(trajectory) if t == n]].mean() for n in set(trajectory)}
    terms = [
        pair.weight * -torch.nn.functional.logsigmoid(loss.beta * (mean[pair.winner] - mean[pair.loser] - loss.margin))
        for pair in totals.pair_members
    ]
    return torch.stack(terms).sum() / totals.pair_weight


def test_the_gradient_is_that_of_the_formula_in_any_split() -> None:
    """Six tokens of three trajectories, of which each lies in several micro-batches."""
    logp, trajectory = [-0.5, -2.0, -1.0, -0.1, -3.0, -0.7], [0, 1, 2, 0, 1, 2]
    totals = count_totals(trajectory, [Pair(0, 1, 0.5), Pair(0, 2, 0.5), Pair(2, 1, 2.0)])
    loss = Simpo(beta=3.0, margin=0.2)
    whole = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    expected = by_hand(whole, trajectory, totals, loss)
    (slopes,) = torch.autograd.grad(expected, whole)
    for size in (1, 2, 3):
        for first in combinations(range(6), size):
            parts = [list(first), [i for i in range(6) if i not in first]]
            tokens = [
                columns(
                    [logp[i] for i in part],
                    trajectory=[trajectory[i] for i in part],
                    sample=part,
                    group=[0] * len(part),
                )
                for part in parts
            ]
            summary = loss.first_pass(tokens[0], totals) + loss.first_pass(tokens[1], totals)
            results = [loss(part_columns, totals, summary) for part_columns in tokens]
            assert sum(number(result.loss) for result in results) == pytest.approx(float(expected.detach()))
            for part, part_columns, result in zip(parts, tokens, results, strict=True):
                assert gradient(result.loss, part_columns.logp) == pytest.approx(slopes[part].tolist())
            tally = results[0].metrics["loss/pair_gap"] + results[1].metrics["loss/pair_gap"]
            assert tally.mean == pytest.approx((2.2 + 0.55 + 1.65) / 3)  # means -0.3, -2.5 and -0.85


def test_a_winner_that_is_no_likelier_than_the_loser_is_not_told_apart() -> None:
    tokens = columns([-1.0, -1.0], trajectory=[0, 1], sample=[0, 1], group=[0, 0])
    totals = count_totals([0, 1], [Pair(0, 1)])
    metrics = Simpo()(tokens, totals, Simpo().first_pass(tokens, totals)).metrics
    assert metrics["loss/pair_gap"].mean == 0.0
    assert metrics["loss/pair_accuracy"].mean == 0.0


def test_large_gaps_stay_finite() -> None:
    tokens = columns([-900.0, -1.0], trajectory=[0, 1], sample=[0, 1], group=[0, 0])
    totals = count_totals([0, 1], [Pair(0, 1)])
    loss = Simpo(beta=10.0, margin=0.0)
    result = loss(tokens, totals, loss.first_pass(tokens, totals))
    assert number(result.loss) == pytest.approx(8990.0)
    assert gradient(result.loss, tokens.logp) == pytest.approx([-10.0, 10.0])


def test_without_pairs_the_loss_is_a_zero_that_one_can_differentiate() -> None:
    tokens = columns([-1.0, -2.0], trajectory=[0, 1], sample=[0, 1], group=[0, 0])
    totals = count_totals([0, 1], [])
    result = Simpo()(tokens, totals, Simpo().first_pass(tokens, totals))
    assert number(result.loss) == 0.0
    assert gradient(result.loss, tokens.logp) == [0.0, 0.0]
    assert result.metrics == {}


def test_it_says_that_it_needs_pairs_and_no_unit_beyond_a_sample() -> None:
    assert Simpo().needs == {PAIRS}
    assert Simpo().unit == "sample"


def test_sums_of_micro_batches_add_up() -> None:
    totals = count_totals([0, 1, 1, 2, 3], [])
    here = columns([-0.5, -1.0, -2.0], trajectory=[0, 1, 1], sample=[0, 1, 2], group=[4, 5, 5])
    there = columns([-1.5, -4.0], trajectory=[0, 2], sample=[3, 4], group=[4, 6])
    merged = TrajectorySums.of(here, totals, logp=here.logp) + TrajectorySums.of(there, totals, logp=there.logp)
    assert merged.tokens.tolist() == [2, 2, 1, 0]
    assert merged.group.tolist() == [4, 5, 6, -1]
    assert merged.sums["logp"].tolist() == [-2.0, -3.0, -4.0, 0.0]
    assert merged.mean("logp").tolist() == [-1.0, -1.5, -4.0, 0.0]
    assert not merged.sums["logp"].requires_grad


def test_sums_are_refused_without_groups_and_beyond_the_totals() -> None:
    totals = count_totals([0], [])
    with pytest.raises(RecordError) as caught:
        TrajectorySums.of(columns([-1.0]), totals)
    assert str(caught.value) == "column 'group' is missing, which a first pass over groups reads; pass it"
    with pytest.raises(RecordError) as caught:
        TrajectorySums.of(columns([-1.0], trajectory=[1], group=[0]), totals)
    assert str(caught.value) == (
        "trajectory 1 is not among the 1 of the totals; count the totals over all samples of the update "
        "(Totals.count) and number trajectories from 0"
    )


def test_what_is_summed_may_be_of_another_precision_than_the_log_probs() -> None:
    here = columns([-0.5, -1.0], trajectory=[0, 0], group=[0, 0])
    sums = TrajectorySums.of(here, count_totals([0, 0], []), credit=torch.tensor([1.5, 2.0], dtype=torch.float32)).sums
    assert sums["credit"].tolist() == [3.5]
    assert sums["credit"].dtype == torch.float64


def test_a_share_has_the_tokens_share_of_the_value_and_the_slope_of_its_trajectories() -> None:
    totals = count_totals([0, 1, 1, 1], [])
    here = columns([-1.0, -2.0], trajectory=[1, 0], sample=[0, 1], group=[0, 0])
    value, slope_R = torch.tensor(8.0, dtype=torch.float64), torch.tensor([10.0, 20.0], dtype=torch.float64)
    share = share_of_step(value, slope_R, 3 * here.logp, here, totals)
    assert number(share) == 4.0
    assert gradient(share, here.logp) == [60.0, 30.0]


def test_the_only_token_of_a_step_has_the_whole_value() -> None:
    here = columns([-1.0], group=[0])
    value, slope_R = torch.tensor(8.0, dtype=torch.float64), torch.tensor([10.0], dtype=torch.float64)
    assert number(share_of_step(value, slope_R, here.logp, here, count_totals([0], []))) == 8.0
