"""Intervals of success rates: known values, limits, and coverage by simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.evaluation.summary import Z_95, mean_over_clusters, student_quantile, wilson_interval

BITS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6)


def test_wilsons_interval_is_the_published_one() -> None:
    # Brown, Cai, DasGupta 2001: 0 of 10 gives [0, 0.2775]; 5 of 10 gives [0.2366, 0.7634].
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-4)
    assert wilson_interval(5, 10) == pytest.approx((0.23659, 0.76341), abs=1e-4)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=50))
def test_one_rollout_a_task_gives_wilsons_interval(wins: list[float]) -> None:
    share, interval = mean_over_clusters([[win] for win in wins])
    assert share == pytest.approx(sum(wins) / len(wins))
    assert interval == pytest.approx(wilson_interval(sum(wins), len(wins)), abs=1e-9)


@given(st.lists(BITS, min_size=1, max_size=20))
def test_the_interval_lies_between_those_of_all_rollouts_and_of_as_many_tasks(scores: list[list[float]]) -> None:
    share, (low, high) = mean_over_clusters(scores)
    rollouts = sum(len(cluster) for cluster in scores)
    tight, wide = wilson_interval(share * rollouts, rollouts), wilson_interval(share * len(scores), len(scores))
    assert wide[0] - 1e-9 <= low <= tight[0] + 1e-9
    assert tight[1] - 1e-9 <= high <= wide[1] + 1e-9


@given(st.lists(BITS, min_size=1, max_size=12), st.randoms())
def test_the_order_of_tasks_and_rollouts_does_not_matter(scores: list[list[float]], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = [random.sample(cluster, len(cluster)) for cluster in random.sample(scores, len(scores))]
    assert mean_over_clusters(shuffled) == mean_over_clusters(scores)


def test_repeating_what_is_certain_adds_nothing_and_repeating_chance_adds_nearly_all() -> None:
    _, certain = mean_over_clusters([[1.0] * 9, [0.0] * 9] * 10)
    assert certain == pytest.approx(wilson_interval(10, 20))
    _, chance = mean_over_clusters([[1.0, 0.0]] * 20)
    tries = 40 * (1.959964 / 2.093024) ** 2  # Student's quantile with 19 degrees of freedom
    assert chance == pytest.approx(wilson_interval(tries / 2, tries), abs=1e-5)
    # Where everything was solved nobody knows how alike the tasks are: count tasks, not rollouts.
    _, solved = mean_over_clusters([[1.0] * 9] * 20)
    assert solved == pytest.approx(wilson_interval(20, 20))


def test_two_tasks_say_little_however_often_they_are_tried() -> None:
    _, (low, high) = mean_over_clusters([[1.0] * 3 + [0.0] * 47, [1.0] * 2 + [0.0] * 48])
    assert low < 0.01
    assert high > 0.5


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (199, 1.972)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(Z_95, freedom) == pytest.approx(quantile, rel=0.01)


def test_every_task_counts_the_same_however_many_rollouts_it_has() -> None:
    share, _ = mean_over_clusters([[1.0], [0.0] * 9])
    assert share == 0.5


def coverage(
    draw_p: Callable[[np.random.Generator, int], np.ndarray], mean: float, *, tasks: int, rounds: int = 1500
) -> tuple[float, float]:
    """How often the true mean lies in our interval, and in one that takes every rollout for a task of its own."""
    random = np.random.default_rng(0)
    hits, naive = 0, 0
    for _ in range(rounds):
        success = (random.random((tasks, 3)) < draw_p(random, tasks)[:, None]).astype(float)
        share, (low, high) = mean_over_clusters(success.tolist())
        hits += low <= mean <= high
        low, high = wilson_interval(share * success.size, success.size)
        naive += low <= mean <= high
    return hits / rounds, naive / rounds


@pytest.mark.parametrize("tasks", [33, 200])
def test_the_interval_covers_the_success_on_further_tasks_95_times_in_100(tasks: int) -> None:
    # Tasks are mostly solved always or never: Beta(0.6, 0.4), mean 0.6.
    ours, naive = coverage(lambda random, num: random.beta(0.6, 0.4, num), 0.6, tasks=tasks)
    assert 0.935 <= ours <= 0.965
    assert naive < 0.85  # what it would be to call three rollouts at a task three tasks


@pytest.mark.parametrize("tasks", [33, 200])
def test_the_interval_covers_where_tasks_are_equally_hard(tasks: int) -> None:
    ours, _ = coverage(lambda random, num: np.full(num, 0.6), 0.6, tasks=tasks)
    assert 0.935 <= ours <= 0.975


def test_the_interval_covers_where_nearly_every_task_is_solved_for_certain() -> None:
    ours, _ = coverage(lambda random, num: (random.random(num) < 0.99).astype(float), 0.99, tasks=200)
    assert 0.935 <= ours <= 0.965
