"""The environment's expert as a judge by rule: what it would have done in the place of recorded steps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError, Step, Task, Trajectory
from groupwise.envs import Household
from groupwise.methods.after_webstar import ExpertScore
from groupwise.training.collect.measuring import RunTools
from tests.unit.envs.corridor import CorridorPart

HOME = Household(rooms=("bedroom",), categories=("pick",), num_receptacles=3, num_objects=2, max_steps=15)


def tools_of(env: Any) -> RunTools:
    run: Any = SimpleNamespace(config=SimpleNamespace(env=env))
    tools = RunTools(run, 1)
    tools.scorer = ExpertScore()
    return tools


def rollout(task: Task, *actions: tuple[str, bool]) -> Trajectory:
    steps = tuple(Step(index=n, action=action, accepted=accepted) for n, (action, accepted) in enumerate(actions))
    return Trajectory(id="a", task=task, rollout=0, steps=steps)


def follow_expert(task: Task) -> list[str]:
    environment, actions = HOME.open(task), []
    while (action := environment.expert()) is not None:
        actions.append(action)
        environment.act(action)
    return actions


def score(*rollouts: Trajectory) -> list[list[float]]:
    info = ExpertScore()([list(rollouts)], tools_of(HOME), draw=lambda *_: None)  # type: ignore[arg-type,return-value]
    return [[step["step_score"] for step in of_rollout] for of_rollout in info[0]]


def test_a_step_is_scored_by_whether_the_expert_would_have_taken_it() -> None:
    task = HOME.task_set("train")[0]
    way = follow_expert(task)
    assert len(way) > 2
    straight = rollout(task, *((action, True) for action in way))
    detour = rollout(task, ("look", True), ("sing", False), *((action, True) for action in way))
    assert score(straight, detour) == [[10.0] * len(way), [5.0, 0.0] + [10.0] * len(way)]


def test_a_fault_leaves_the_rest_without_advice() -> None:
    task = HOME.task_set("train")[0]
    broken = replace(task, payload={})
    assert tools_of(HOME).ask_expert([rollout(broken, ("look", True), ("look", True))]) == [[None, None]]
    assert score(rollout(broken, ("look", True), ("sing", False))) == [[5.0, 0.0]]


def test_an_environment_without_an_expert_is_refused() -> None:
    class NoExpertPart(CorridorPart):
        def open(self, task: Task) -> Any:
            environment = super().open(task)
            return SimpleNamespace(observe=environment.observe, act=environment.act)

    part = NoExpertPart()
    with pytest.raises(
        ConfigError, match="a scorer asks the environment's expert, but there is none; leave the scorer"
    ):
        tools_of(part).ask_expert([rollout(part.task_set("train")[0], ("look", True))])
