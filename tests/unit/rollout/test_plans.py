"""Attempt plans: when an update has enough groups, and which of them count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, Task, Trajectory
from groupwise.rollout import Flat, TopUp

Groups = list[list[Trajectory]]


def group(name: str, *successes: float) -> list[Trajectory]:
    task = Task.create(env="identity", payload={"name": name})
    return [
        Trajectory(id=f"{name}/{n}", task=task, attempt=n, steps=(), scores={"success": score, "return": score - n / 8})
        for n, score in enumerate(successes)
    ]


def test_flat_asks_once_and_takes_what_it_gets() -> None:
    plan, got = Flat(attempts=4), [group("a", 1, 1), group("b", 0, 1)]
    assert plan.missing([], 2) == 2
    assert plan.missing([got], 5) == 0
    assert plan.chosen(got, 5) == got


def test_top_up_asks_for_as_many_as_teach_nothing() -> None:
    plan = TopUp(attempts=2, rounds=3)
    equal, mixed = [group("a", 1, 1), group("b", 0, 0)], [group("c", 0, 1)]
    assert plan.missing([], 3) == 3
    assert plan.missing([[*equal, *mixed]], 3) == 2
    assert plan.missing([[*equal, *mixed], [group("d", 1, 0), group("e", 0, 1)]], 3) == 0
    assert plan.missing([equal, equal, equal], 3) == 0, "three rounds are enough, whatever they brought"


def test_returns_that_differ_by_a_length_penalty_alone_do_not_count() -> None:
    equal, mixed = group("a", 1, 1), group("b", 0, 1)
    assert TopUp().chosen([equal, mixed], 2) == [mixed]
    assert TopUp(of="return").chosen([equal, mixed], 2) == [equal, mixed]
    assert TopUp().chosen([equal], 1) == [equal], "where none teaches, the update has them all, and learns nothing"


def test_without_the_score_the_return_is_compared() -> None:
    task = Task.create(env="identity")
    plain = [Trajectory(id=str(n), task=task, attempt=n, steps=(), scores={"return": float(n)}) for n in range(2)]
    assert TopUp().chosen([plain], 1) == [plain]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=12), st.integers(1, 5))
def test_top_up_chooses_the_first_groups_with_a_spread(pairs: list[tuple[int, int]], wanted: int) -> None:
    groups: Groups = [group(str(number), *pair) for number, pair in enumerate(pairs)]
    chosen = TopUp().chosen(groups, wanted)
    mixed = [members for members, pair in zip(groups, pairs, strict=True) if pair[0] != pair[1]]
    assert chosen == (mixed[:wanted] or groups)


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="attempts"):
        Flat(attempts=1)
