"""A signal with a most: the made-up best rollout of a group must not be beaten by a real one."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import ConfigError, RecordError, methods
from groupwise.credit import EpisodeReturn, StepRewardSignal
from groupwise.methods.ngrpo import Bounded
from tests.unit.tables import single_steps, table


def test_what_stays_below_the_best_passes_as_it_is() -> None:
    rows = table("task rollout step reward", ("q", 0, 0, 0.25), ("q", 0, 1, 0.75), ("q", 1, 0, -3.0))
    assert Bounded(of=EpisodeReturn(), best=1.0)(rows).tolist() == [1.0, 1.0, -3.0]
    assert Bounded(of=StepRewardSignal(), best=0.75)(rows).tolist() == [0.25, 0.75, -3.0]


def test_the_last_digit_of_a_sum_is_not_above_the_best() -> None:
    above = float(np.nextafter(1.0, 2.0))
    assert Bounded(of=EpisodeReturn(), best=1.0)(single_steps([above, 0.0])).tolist() == [above, 0.0]


@pytest.mark.parametrize(
    ("best", "signal", "passes"),
    [
        (1.0, 1 + 9e-10, True),
        (1.0, 1 + 1.1e-9, False),
        (1.0, 1.5, False),
        (0.5, 0.5 + 9e-10, True),
        (-100.0, -100 + 9e-8, True),
        (-100.0, -100 + 1.1e-7, False),
    ],
)
def test_a_sum_may_pass_the_best_by_a_billionth_of_it_but_of_no_less_than_1(
    best: float, signal: float, passes: bool
) -> None:
    rows, bounded = single_steps([signal, best]), Bounded(of=EpisodeReturn(), best=best)
    if passes:
        assert bounded(rows).tolist() == [signal, best]
    else:
        with pytest.raises(RecordError, match=r"rollout 0, step 0: the return is .*, above `best`"):
            bounded(rows)


def test_a_return_above_the_best_is_refused_by_row() -> None:
    """Ten for a win, as the reward `outcome` pays, beside a made-up best of 1: the best would be nearly the worst."""
    with pytest.raises(RecordError) as caught:
        methods.ngrpo().advantage(single_steps([0, 0], [10, 10]))
    assert str(caught.value) == (
        "task 't1', rollout 0, step 0: the return is 10, above `best`, 1; set `best` to what a perfect rollout earns"
    )


def test_with_the_true_best_solved_tasks_get_nothing_and_are_dropped() -> None:
    algorithm, rows = methods.ngrpo(best=10), single_steps([10, 10], [10, 0])
    # The mixed one: 10, 0 and the made-up 10 have mean 20/3 and sample deviation 10 / sqrt(3).
    assert algorithm.advantage(rows).values.tolist() == pytest.approx([0, 0, 3**0.5 / 3, -2 * 3**0.5 / 3], abs=1e-6)
    assert algorithm.keep(rows).tolist() == [False, False, True, True]


def test_the_best_is_finite() -> None:
    with pytest.raises(ConfigError) as caught:
        Bounded(of=EpisodeReturn(), best=float("inf"))
    assert str(caught.value) == "Bounded: best: expected a finite number, found inf"
