"""How strongly R^3 ranks and replays, worked out by hand: additions to numbers, R^3.

Eight rollouts at a task, none right, N of them cut off and told apart by their entropies; population deviation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groupwise import Trajectory, methods
from groupwise.credit import FixedUnlessSolved, Relative, shape_group
from groupwise.methods.r3 import EntropyRanking
from groupwise.parts.algorithm import Algorithm
from groupwise.training.samples import credit_batch
from tests.golden.cut_answers import answer, near
from tests.golden.tables import credit, rollouts


def make_ranked_group(num_cut: int, num: int = 8) -> list[Trajectory]:
    """Failed rollouts of which the first were cut off: of these, each beats all that come after it."""
    peaked = [(9.0 - i, *[0.2 * i] * 9) for i in range(num_cut)]
    cut = [answer(i, entropy=entropies) for i, entropies in enumerate(peaked)]
    return cut + [answer(i, cut=False) for i in range(num_cut, num)]


def compute_credit(group: list[Trajectory], ranking: EntropyRanking, algorithm: Algorithm | None = None) -> list[float]:
    shaped = shape_group(group, [ranking])
    return credit_batch(algorithm or methods.r3(), shaped, version=0).values.tolist()


@pytest.mark.parametrize(
    ("num_cut", "best", "worst", "mean", "finished"),
    [
        (2, 2.6457, -0.3780, 1.1339, -0.3780),
        (3, 2.3349, -0.5388, 0.8980, -0.5388),
        (4, 2.0647, -0.6882, 0.6882, -0.6882),
        (6, 1.7050, -1.0230, 0.3410, -1.0230),
        (7, 1.5938, -1.2396, 0.1771, -1.2396),
        (8, 1.5275, -1.5275, 0.0, None),
    ],
)
def test_being_cut_off_pays_where_the_finished_earn_nothing(
    num_cut: int, best: float, worst: float, mean: float, finished: float | None
) -> None:
    values = compute_credit(make_ranked_group(num_cut), EntropyRanking(finished="zero"))
    cut, rest = values[:num_cut], values[num_cut:]
    assert [max(cut), min(cut), sum(cut) / num_cut] == near([best, worst, mean])
    assert rest == near([] if finished is None else [finished] * len(rest))


@pytest.mark.parametrize(("num_cut", "best"), [(2, 2.0), (3, 2.0), (4, 1.8974), (6, 1.6903), (8, 1.5275)])
def test_the_mean_for_the_finished_takes_the_prize_for_being_cut_off_away(num_cut: int, best: float) -> None:
    values = compute_credit(make_ranked_group(num_cut), EntropyRanking(finished="mean"))
    assert max(values) == pytest.approx(best, abs=1e-4)
    assert sum(values[:num_cut]) == pytest.approx(0, abs=1e-9)
    assert values[num_cut:] == pytest.approx([0.0] * (8 - num_cut), abs=1e-9)


@pytest.mark.parametrize("returns", [(0.5, 0.25, 0, 0), (0.05, 0.025, 0, 0)])
def test_the_deviation_cancels_the_size_of_ranked_rewards(returns: tuple[float, ...]) -> None:
    expected = [1.5075, 0.3015, -0.9045, -0.9045]
    assert credit(rollouts(returns), "r3") == pytest.approx(expected, abs=1e-4)


def use_fixed_scale(**settings: Any) -> Algorithm:
    """R^3 whose groups without success are divided by a number."""
    algorithm = methods.r3()
    assert isinstance(algorithm.advantage, Relative)
    scale = FixedUnlessSolved(ddof=0, **settings)
    return algorithm.model_copy(update={"advantage": algorithm.advantage.model_copy(update={"scale": scale})})


@pytest.mark.parametrize("best", [0.5, 0.05])
def test_a_fixed_scale_gives_a_ranked_group_credit_from_minus_best_to_best(best: float) -> None:
    values = compute_credit(make_ranked_group(8), EntropyRanking(best=best), use_fixed_scale())
    assert (values[0], values[-1]) == pytest.approx((best, -best), abs=1e-12)
    assert values == sorted(values, reverse=True)


def test_a_fixed_scale_leaves_groups_with_a_success_to_their_deviation() -> None:
    group = [*make_ranked_group(3, 3), answer(3, 1.0)]
    replayed = replace(answer(8, 1.0), off_policy=True)
    for members in (group, [*make_ranked_group(8), replayed]):
        fixed, usual = (
            compute_credit(members, EntropyRanking(), algorithm) for algorithm in (use_fixed_scale(), methods.r3())
        )
        assert fixed == usual


@pytest.mark.parametrize(
    ("returns", "own", "replayed"), [((1.0,) * 8 + (0.0,), 0.3536, -2.8284), ((0.0,) * 8 + (1.0,), -0.3536, 2.8284)]
)
def test_one_replayed_rollout_of_the_other_kind_outweighs_its_group(
    returns: tuple[float, ...], own: float, replayed: float
) -> None:
    table = rollouts(returns, off_policy=[False] * 8 + [True])
    assert credit(table, "r3") == pytest.approx([own] * 8 + [replayed], abs=1e-4)
