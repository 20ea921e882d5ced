"""The episode loop with scripted answers."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import StopReason, Task
from groupwise.envs import Identity
from groupwise.envs.environment import Observation
from groupwise.system.errors import EngineFault, EnvironmentFault
from tests.unit.rollout.scripted_episodes import ENV, Breaking, play


def test_an_rollout_that_outgrows_the_model_is_cut_off_and_says_so() -> None:
    env = Identity(num_words=4, length=4)
    trajectories = play(env, env.task_set("train")[:2], context=18)
    for trajectory in trajectories:
        longest = len(trajectory.steps[-1].prompt_ids)
        assert 0 < len(trajectory.steps) < 4
        assert longest + 4 <= 18
        assert trajectory.stop is StopReason.TRUNCATED
        assert trajectory.scores["success"] == 0.0
        assert "4 to sample do not fit into the model's 18; shorten rollout.history" in (trajectory.error or "")


def test_a_first_prompt_that_does_not_fit_stops_the_run() -> None:
    task = ENV.task_set("train")[0]
    with pytest.raises(
        EngineFault, match=rf"task '{re.escape(task.id)}': a prompt of .* do not fit into the model's 6"
    ):
        play(ENV, [task], context=6)


def test_an_rollout_is_recorded_step_by_step() -> None:
    task = ENV.task_set("train")[0]
    words = list(task.payload["words"])
    [trajectory] = play(ENV, [task])
    assert [step.action for step in trajectory.steps] == words
    assert [step.state_key for step in trajectory.steps] == words
    assert [step.index for step in trajectory.steps] == [0, 1]
    assert [step.reward for step in trajectory.steps] == [1.0, 1.0]
    assert trajectory.scores == {"return": 2.0, "success": 1.0}
    assert (trajectory.stop, trajectory.versions, trajectory.error) == (StopReason.TERMINATED, (3,), None)
    first, second = trajectory.steps
    assert second.prompt_ids[: len(first.prompt_ids) + len(first.response_ids)] == first.prompt_ids + first.response_ids


def test_a_refused_action_is_a_step_too() -> None:
    task = ENV.task_set("train")[0]
    [trajectory] = play(ENV, [task], {"0": ["say", task.payload["words"][1]]})
    assert [step.accepted for step in trajectory.steps] == [False, True]
    assert trajectory.scores["success"] == 0.0


def test_an_environment_that_raises_costs_its_own_rollout_only() -> None:
    Breaking.opened = 0
    task = ENV.task_set("train")[0]
    first, broken, third = play(Breaking(), [task, task, task])
    assert (broken.stop, broken.error) == (StopReason.ERROR, "RuntimeError: the roof fell in")
    assert len(broken.steps) == 2
    assert [t.scores["success"] for t in (first, third)] == [1.0, 1.0]
    assert "success" not in broken.scores


class Shifting:
    """Shows something else each time it is opened."""

    opened = 0

    def open(self, task: Task) -> Any:
        Shifting.opened += 1
        return self.Instance(Shifting.opened)

    class Instance:
        def __init__(self, number: int) -> None:
            self.number = number

        def observe(self) -> Observation:
            return Observation(text=f"room {self.number}", state_key=self.number)


def test_rollouts_that_start_from_different_observations_stop_the_run() -> None:
    Shifting.opened = 0
    task = ENV.task_set("train")[0]
    with pytest.raises(EnvironmentFault) as caught:
        play(Shifting(), [task, task])
    assert str(caught.value) == (
        f"task {task.id!r}: rollouts 0 and 1 start from different observations ('room 1' and 'room 2'); open the "
        "environment from the task alone, without global random numbers"
    )


def test_a_response_that_was_cut_off_is_recorded_as_such_and_has_not_the_form() -> None:
    task = ENV.task_set("train")[0]
    words = task.payload["words"]
    [trajectory] = play(ENV, [task], {"0": [" ".join([words[0]] * 6), words[1]]})
    assert [len(step.response_ids) for step in trajectory.steps] == [4, 2]
    assert [(step.cut, step.well_formed, step.accepted, step.valid) for step in trajectory.steps] == [
        (True, False, False, False),
        (False, True, True, True),
    ]


def test_a_response_of_the_asked_form_may_still_be_no_action() -> None:
    task = ENV.task_set("train")[0]
    [trajectory] = play(ENV, [task], {"0": ["goal", task.payload["words"][1]]})
    assert [(step.well_formed, step.accepted) for step in trajectory.steps] == [(True, False), (True, True)]
