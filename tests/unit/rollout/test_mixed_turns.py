"""Curricula of several environments: shares by weight, each in its own order, taken up where they were left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, Task, Trajectory
from groupwise.rollout.tasks import MixedTurns, Shuffled

TASK_SETS = {
    "easy": tuple(Task.create(env="easy", seed=seed) for seed in range(5)),
    "hard": tuple(Task.create(env="hard", seed=seed) for seed in range(3)),
}


def start(**weights: float) -> MixedTurns:
    curricula = {name: Shuffled().start(tasks, seed=len(name)) for name, tasks in TASK_SETS.items()}
    return MixedTurns(curricula, weights=weights or {"easy": 3, "hard": 1}, name_of=lambda task: task.env)


def test_every_update_has_the_shares_and_each_environment_its_own_order() -> None:
    live = start()
    updates = [live.next(8) for _ in range(5)]
    assert [[task.env for task in tasks].count("easy") for tasks in updates] == [6] * 5
    handed_out = [task for tasks in updates for task in tasks]
    for name, tasks in TASK_SETS.items():
        own = [task.id for task in handed_out if task.env == name]
        assert own == [task.id for task in Shuffled().start(tasks, seed=len(name)).next(len(own))]


@given(st.lists(st.integers(0, 7), max_size=6), st.integers(0, 6))
def test_any_way_of_asking_gives_one_sequence_and_a_resumed_one_goes_on(asked: list[int], cut: int) -> None:
    whole = [task.id for task in start().next(sum(asked))]
    live, pieces = start(), list[str]()
    for turn, num in enumerate(asked):
        if turn == cut:
            resumed = start()
            resumed.load_state_dict(live.state_dict())
            live = resumed
        pieces += [task.id for task in live.next(num)]
    assert pieces == whole


class Attentive:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.played: list[str] = []

    def next(self, num: int) -> list[Task]:
        return []

    def observe(self, played: list[Trajectory]) -> None:
        self.played += [trajectory.task.env for trajectory in played]


def test_each_is_told_of_its_own_tasks_and_one_that_gives_too_few_is_named() -> None:
    curricula: dict[str, Any] = {"easy": Attentive(), "hard": Attentive()}
    live = MixedTurns(curricula, weights={"easy": 1, "hard": 1}, name_of=lambda task: task.env)
    played = [Trajectory(id="a", task=TASK_SETS[name][0], rollout=0, steps=()) for name in ("easy", "hard", "easy")]
    live.observe(played)
    assert {name: curriculum.played for name, curriculum in curricula.items()} == {
        "easy": ["easy", "easy"],
        "hard": ["hard"],
    }
    with pytest.raises(ConfigError) as raised:
        live.next(2)
    assert str(raised.value) == ("the curriculum Attentive: next returned a list of 0; expected a list of 1 tasks")
