"""What an environment says with an outcome goes with the step: through workers, into records, tables and rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import StepTable, StopReason
from groupwise.data.step_columns import make_rows
from groupwise.envs.environment import Outcome
from groupwise.report.derived_credit import make_step_table
from groupwise.rollout.environment_runner import Fault, InProcess
from groupwise.rollout.worker_pool import Workers
from tests.unit.rollout import scripted_episodes
from tests.unit.rollout.knowing import Knowing

ENV = Knowing()
NEAR = {"distance": 4, "path": ["here", {"to": "near"}]}
FAR = {"distance": 3, "path": ["here", {"to": "far"}]}


@pytest.fixture
def play() -> Callable[..., Any]:
    """Plays one rollout that says these words."""
    return lambda *words: scripted_episodes.play(
        ENV, ENV.task_set("train"), {"0": list(words)}, vocabulary=ENV.vocabulary()
    )


def test_workers_hand_info_over_as_this_process_does() -> None:
    said = []
    with Workers(ENV, num=1, timeout=20.0) as workers, InProcess(ENV) as here:
        for host in (workers, here):
            host.open({0: ENV.task_set("train")[0], 1: ENV.task_set("train")[0]})
            said.append([host.act({0: "near", 1: "reward"}), host.act({0: "nothing"})])
    assert said[0] == said[1]
    first, fault = said[0][0][0], said[0][0][1]
    assert isinstance(first, Outcome)
    assert first.info == NEAR
    assert isinstance(fault, Fault)
    assert "Outcome.info['reward'] has a reserved name; choose another name" in fault.message


def test_a_step_holds_what_its_outcome_said_and_no_more(play: Callable[..., Any]) -> None:
    (trajectory,) = play("nothing", "far")
    assert [step.info for step in trajectory.steps] == [{}, FAR], "the environment adds to its info as it goes"


def test_info_are_columns_for_any_method_now_and_again(play: Callable[..., Any]) -> None:
    trajectories = play("near", "far")
    rows = json.loads(json.dumps([row for trajectory in trajectories for row in make_rows(trajectory)]))
    assert [row["extra"] for row in rows] == [NEAR, FAR]
    for table in (StepTable.from_trajectories(trajectories), make_step_table(rows)):
        assert table.column("distance").tolist() == [4, 3]


def test_info_under_a_name_that_is_taken_end_the_rollout_with_a_sentence(play: Callable[..., Any]) -> None:
    (trajectory,) = play("reward")
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.error is not None
    assert "Outcome.info['reward'] has a reserved name; choose another name" in trajectory.error
    assert [step.info for step in trajectory.steps] == [{}]
