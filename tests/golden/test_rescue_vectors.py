"""Every numeric vector of R^3 and of its neighbours: numbers, R^3, Unlikeliness, Buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from groupwise import Trajectory, methods
from groupwise.credit import shape_group
from groupwise.methods.r3 import EntropyRanking, compute_ranking_rewards
from groupwise.methods.selective_buffer import SelectiveBuffer
from groupwise.methods.unlikeliness import Unlikeliness
from groupwise.store.journal import Journal, Update
from groupwise.training.samples import credit_batch
from tests.golden.cut_answers import answer, near
from tests.golden.tables import credit, rollouts

TABLE = (
    (0.1,) * 8 + (2.0, 1.6),
    (0.6,) * 10,
    (0.5, 0.4, 0.5, 0.4, 1.2, 0.5, 0.4, 0.5, 0.4, 1.0),
    (0.2,) * 8 + (1.4, 1.4),
)
"""The entropies of numbers, R^3."""


def amounts_paid(group: Sequence[Trajectory], ranking: EntropyRanking) -> list[float]:
    return [one.steps[0].shaped for one in shape_group(group, [ranking])]


def test_four_cut_off_answers_are_paid_by_their_entropies() -> None:
    """numbers, R^3: p 0.2, R_max 0.5; 0 and 3 tie, for their global entropies are equal."""
    group = [answer(i, entropy=entropies) for i, entropies in enumerate(TABLE)]
    assert amounts_paid(group, EntropyRanking()) == near([0.4167, 0.0, 0.1667, 0.4167])


@pytest.mark.parametrize(
    ("peak", "overall", "expected"),
    [
        # 0 beats 1 and 2; 3 beats 1 alone; 1 and 2 have equal peaks: S = 2, 0, 0, 1.
        ([9, 1, 1, 10], [1, 9, 3, 5], [0.5, 0.0833, 0.0833, 0.3333]),
        # Peaks and global entropies in one order: nobody beats anybody.
        ([1, 2, 3, 4], [1, 2, 3, 4], [0.25] * 4),
    ],
)
def test_the_order_of_dominance_is_paid_with_shared_ranks(
    peak: list[float], overall: list[float], expected: list[float]
) -> None:
    """numbers, R^3: S = [2,0,0,1] and S = [0,0,0,0] with R_max 0.5."""
    assert compute_ranking_rewards(np.array(peak, float), np.array(overall, float), best=0.5).tolist() == near(expected)


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, [-0.7071, 1.4142]), (2.0, [-0.3536, 0.7071])])
def test_four_failures_and_two_replayed_successes(alpha: float, expected: list[float]) -> None:
    """numbers, R^3, CCR: R = [0,0,0,0,1,1]."""
    table = rollouts((0, 0, 0, 0, 1, 1), off_policy=[False] * 4 + [True] * 2)
    assert credit(table, "r3", alpha=alpha) == near([expected[0]] * 4 + [expected[1]] * 2)


RANKED = [0.4009, -0.9354, -0.9354, -0.2673, 1.7372]


@pytest.mark.parametrize(
    ("alpha", "replayed", "expected"),
    [
        (1.0, True, RANKED),
        (2.0, True, [value / 2 for value in RANKED]),
        (1.0, False, [1.5075, -0.9045, -0.9045, 0.3015]),
        (2.0, False, [1.5075, -0.9045, -0.9045, 0.3015]),
    ],
)
def test_ranking_and_replay_together(alpha: float, replayed: bool, expected: list[float]) -> None:
    """numbers, R^3: flags [T,T,F,T], SERR [0.5, 0, -, 0.25], one replayed correct; and without it."""
    # By global entropy alone (all peaks higher the lower it is): 0 beats 3 beats 1.
    entropies = ((3.0,) + (0.0,) * 9, (0.6,) * 10, (9.0,) * 10, (1.0,) + (0.3,) * 9)
    zero = EntropyRanking(finished="zero")  # as the paper has it; the default pays the mean of the ranked
    algorithm = methods.r3(alpha=alpha).model_copy(update={"shapers": (zero,)})
    group = [answer(i, entropy=entropies[i], cut=i != 2) for i in range(4)]
    chosen = shape_group(group, algorithm.shapers)
    assert [one.steps[0].shaped for one in chosen] == near([0.5, 0.0, 0.0, 0.25])
    joined = [replace(answer(4, 1.0), off_policy=True)] if replayed else []
    values = credit_batch(algorithm, [*chosen, *joined], version=0).values.tolist()
    assert values == pytest.approx(expected, abs=1e-4, rel=0)


def test_unlikely_right_answers_are_worth_more() -> None:
    """numbers, Unlikeliness: r = [1,1,0,1], mean log-probs [-.2,-.9,-.5,-.4]; k = [3,0,1,2]."""
    logps = (-0.2, -0.9, -0.5, -0.4)
    group = [answer(i, reward, entropy=(0.0, 0.0)) for i, reward in enumerate((1.0, 1.0, 0.0, 1.0))]
    group = [
        replace(one, steps=(replace(one.steps[0], logp_behaviour=(logp - 0.1, logp + 0.1)),))
        for one, logp in zip(group, logps, strict=True)
    ]
    shaped = shape_group(group, [Unlikeliness()])
    assert [one.steps[0].reward + one.steps[0].shaped for one in shaped] == [0.8125, 1.0, 0.0, 0.875]
    values = credit_batch(methods.grpo(), shaped, version=0).values.tolist()
    assert values == pytest.approx([0.309304, 0.721709, -1.477785, 0.446772], abs=1e-6)
    assert credit_batch(methods.grpo(), group, version=0).values[2] == pytest.approx(-1.499997, abs=1e-6)


def test_the_buffer_draws_in_proportion_to_the_size_of_the_credit(tmp_path: Path) -> None:
    """numbers, Buffer: |A| = (2.6458, 1, .378) have the probabilities (.6575, .2485, .0939)."""
    expected, seen = (0.6575, 0.2485, 0.0939), list[list[float]]()

    class Dice:
        def choice(self, num: int, *, size: int, replace: bool, p: np.ndarray) -> np.ndarray:
            seen.append(p.tolist())
            return np.arange(size)

    with Journal(tmp_path / "journal.sqlite") as journal:
        past = [answer(i, 1.0, entropy=(0.0,) * (i + 1)) for i in range(4)]  # no two say the same
        sizes = [[2.6458], [-1.0], [0.378], [0.0]]
        journal.write(Update(number=1, version=1, metrics={}, trajectories=past, credit=sizes))
        idle = [answer(i) for i in range(8)]
        SelectiveBuffer()([idle], journal.past_rollouts, version=1, draw=lambda *_: Dice())  # type: ignore[arg-type, return-value]
    assert seen == [near(expected)]
