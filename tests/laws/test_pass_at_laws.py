"""Laws of pass@k: it equals the count of all choices, grows with k, is unbiased, and its interval covers."""

from __future__ import annotations

from itertools import pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.evaluation.summary import mean_over_clusters, mean_pass_at, pass_at
from tests.oracles import pass_at as oracle

TASK = st.lists(st.booleans(), min_size=1, max_size=9)


@st.composite
def task_sets(draw: st.DrawFn) -> list[list[bool]]:
    rollouts = draw(st.integers(1, 8))
    return draw(st.lists(st.lists(st.booleans(), min_size=rollouts, max_size=rollouts), min_size=1, max_size=12))


def counts(tasks: list[list[bool]]) -> list[tuple[int, int]]:
    return [(sum(task), len(task)) for task in tasks]


@given(task=TASK, data=st.data())
def test_it_is_the_share_of_all_choices(task: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(task)))
    assert pass_at(k, wins=sum(task), tries=len(task)) == pytest.approx(float(oracle.pass_at(task, k)), abs=1e-12)


@given(tasks=task_sets(), data=st.data())
def test_the_mean_is_that_of_the_oracle_and_lies_in_its_interval(tasks: list[list[bool]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(tasks[0])))
    share, (low, high) = mean_pass_at(k, counts(tasks))
    assert share == pytest.approx(float(oracle.mean_pass_at(tasks, k)), abs=1e-12)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


@given(tasks=task_sets())
def test_at_one_it_is_mean_success_with_its_interval(tasks: list[list[bool]]) -> None:
    share, interval = mean_over_clusters([[float(solved) for solved in task] for task in tasks])
    pass_at_one, pass_at_one_interval = mean_pass_at(1, counts(tasks))
    assert pass_at_one == pytest.approx(share, abs=1e-12)
    assert pass_at_one_interval == pytest.approx(interval, abs=1e-9)


@given(tasks=task_sets())
def test_it_grows_with_the_number_of_rollouts_up_to_the_share_of_tasks_ever_solved(tasks: list[list[bool]]) -> None:
    curve = [mean_pass_at(k, counts(tasks))[0] for k in range(1, len(tasks[0]) + 1)]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(curve))
    assert curve[-1] == pytest.approx(sum(map(any, tasks)) / len(tasks), abs=1e-12)


@given(task=TASK, data=st.data())
def test_it_grows_with_every_success(task: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(task)))
    curve = [pass_at(k, wins=wins, tries=len(task)) for wins in range(len(task) + 1)]
    assert curve[0] == 0.0
    assert curve[-1] == 1.0
    assert all(later >= earlier for earlier, later in pairwise(curve))


@given(p=st.floats(0, 1), tries=st.integers(1, 12), data=st.data())
def test_its_expectation_is_the_chance_that_one_of_k_succeeds(p: float, tries: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, tries))
    chances = [comb(tries, wins) * p**wins * (1 - p) ** (tries - wins) for wins in range(tries + 1)]
    expected = sum(chance * pass_at(k, wins=wins, tries=tries) for wins, chance in enumerate(chances))
    assert expected == pytest.approx(1 - (1 - p) ** k, abs=1e-9)


@pytest.mark.parametrize("k", [2, 4, 8])
def test_the_interval_covers_pass_at_k_on_further_tasks_95_times_in_100(k: int) -> None:
    # Tasks of Beta(0.5, 1.5): E[1 - (1 - p)^k] in closed form, by the moments of a Beta(1.5, 0.5).
    random = np.random.default_rng(0)
    truth = 1 - float(np.prod([(1.5 + i) / (2.0 + i) for i in range(k)]))
    hits, rounds = 0, 1500
    for _ in range(rounds):
        solvable = random.beta(0.5, 1.5, 60)
        wins = random.binomial(8, solvable)
        _, (low, high) = mean_pass_at(k, [(int(won), 8) for won in wins])
        hits += low <= truth <= high
    assert 0.935 <= hits / rounds <= 0.985
