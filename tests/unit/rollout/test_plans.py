"""Rollout plans: when an update has enough groups, and which of them count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, Task, Trajectory
from groupwise.rollout import Flat, TopUp
from groupwise.rollout.plans import Played, PlayedRound, RolloutPlan
from groupwise.training.config.run_config import RolloutConfig
from tests.unit.pasts import journal, make_draw

Groups = list[list[Trajectory]]


class AskedTasks:
    """A tools that hands out tasks by number, and counts them."""

    def __init__(self) -> None:
        self.num_handed_out = 0

    tasks: Sequence[Task] = ()

    def fresh(self, num: int) -> list[Task]:
        first, self.num_handed_out = self.num_handed_out, self.num_handed_out + num
        return [Task(id=f"t{number}") for number in range(first, first + num)]

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def text(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))


def group(name: str, *successes: float) -> list[Trajectory]:
    task = Task.create(env="identity", payload={"name": name})
    return [
        Trajectory(id=f"{name}/{n}", task=task, rollout=n, steps=(), scores={"success": score, "return": score - n / 8})
        for n, score in enumerate(successes)
    ]


def play(*rounds: Groups) -> Played:
    return Played(update=1, rounds=[PlayedRound(groups=groups) for groups in rounds])


def list_asked(
    plan: RolloutPlan, so_far: Played, wanted: int, folder: Path, *, group_size: int
) -> list[tuple[str, int]]:
    """What a plan asks for: tasks and numbers of rollouts, all unhinted."""
    past_rollouts = journal(folder).past_rollouts
    requests = plan.next(
        so_far, wanted, group_size=group_size, tools=AskedTasks(), past_rollouts=past_rollouts, draw=make_draw()
    )
    assert not any(request.is_hinted for request in requests)
    return [(request.task.id, request.rollouts) for request in requests]


def test_flat_asks_once_and_takes_what_it_gets(tmp_path: Path) -> None:
    plan, got = Flat(), [group("a", 1, 1), group("b", 0, 1)]
    assert list_asked(plan, play(), 2, tmp_path, group_size=4) == [("t0", 4), ("t1", 4)]
    assert list_asked(plan, play(got), 5, tmp_path, group_size=4) == []
    assert plan.choose(play(got), 5) == got


def test_top_up_asks_for_as_many_as_teach_nothing(tmp_path: Path) -> None:
    plan = TopUp(rounds=3)
    equal, mixed = [group("a", 1, 1), group("b", 0, 0)], [group("c", 0, 1)]
    assert list_asked(plan, play(), 3, tmp_path, group_size=2) == [("t0", 2), ("t1", 2), ("t2", 2)]
    assert list_asked(plan, play([*equal, *mixed]), 3, tmp_path, group_size=2) == [("t0", 2), ("t1", 2)]
    assert (
        list_asked(plan, play([*equal, *mixed], [group("d", 1, 0), group("e", 0, 1)]), 3, tmp_path, group_size=2) == []
    )
    assert list_asked(plan, play(equal, equal, equal), 3, tmp_path, group_size=2) == [], (
        "three rounds are enough, whatever they brought"
    )


def test_returns_that_differ_by_a_length_penalty_alone_do_not_count() -> None:
    equal, mixed = group("a", 1, 1), group("b", 0, 1)
    assert TopUp().choose(play([equal, mixed]), 2) == [mixed]
    assert TopUp(of="return").choose(play([equal, mixed]), 2) == [equal, mixed]
    assert TopUp().choose(play([equal]), 1) == [equal], "where none teaches, the update has them all"


def test_without_the_score_the_return_is_compared() -> None:
    task = Task.create(env="identity")
    plain = [Trajectory(id=str(n), task=task, rollout=n, steps=(), scores={"return": float(n)}) for n in range(2)]
    assert TopUp().choose(play([plain]), 1) == [plain]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=12), st.integers(1, 5))
def test_top_up_chooses_the_first_groups_with_a_spread(pairs: list[tuple[int, int]], wanted: int) -> None:
    groups: Groups = [group(str(number), *pair) for number, pair in enumerate(pairs)]
    chosen = TopUp().choose(play(groups), wanted)
    mixed = [members for members, pair in zip(groups, pairs, strict=True) if pair[0] != pair[1]]
    assert chosen == (mixed[:wanted] or groups)


@pytest.mark.parametrize("plan", [Flat(), TopUp()])
def test_hinted_groups_go_on_beside_the_unhinted(plan: RolloutPlan) -> None:
    mixed, hinted = group("b", 0, 1), group("b~1", 1, 1)
    both = Played(update=1, rounds=[PlayedRound(groups=[mixed], hinted=[hinted])])
    assert plan.choose(both, 1) == [mixed, hinted]


def test_a_group_of_one_is_an_error() -> None:
    with pytest.raises(ConfigError, match="group_size: expected a number greater than or equal to 2, found 1"):
        RolloutConfig(group_size=1)
