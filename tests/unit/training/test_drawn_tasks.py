"""Tasks that were drawn for updates still to be made are drawn again, in their order, before the curriculum goes on."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from groupwise import Task
from groupwise.rollout.tasks import Shuffled
from groupwise.training.run import DrawnTasks

TASK_SET = [
    Task.create(env="walks", seed=number, payload={"from": (number, [0]), "by": {1: "x"}}, tags=("a", "b"))
    for number in range(9)
]
"""Payloads that JSON alone would change: a tuple, a key that is a number."""


def test_what_was_drawn_is_drawn_again_after_a_stop() -> None:
    curriculum, drawn = Shuffled().start(TASK_SET, 7), DrawnTasks()
    third, fourth = drawn.draw(3, 2, curriculum), drawn.draw(4, 3, curriculum)
    state = json.loads(json.dumps({"drawn": drawn.state_dict(without=[3]), "curriculum": curriculum.state_dict()}))
    following = curriculum.next(2)
    again, resumed = DrawnTasks(), Shuffled().start(TASK_SET, 7)
    again.load_state_dict(state["drawn"])
    resumed.load_state_dict(state["curriculum"])
    assert again.draw(4, 2, resumed) == fourth[:2]
    kept = json.loads(json.dumps(again.state_dict(without=[])))
    assert kept == state["drawn"], "whatever was drawn again of it: a second stop loses nothing either"
    assert again.draw(4, 2, resumed) == [fourth[2], following[0]]
    assert again.draw(5, 1, resumed) == following[1:]
    assert not {task.id for task in third} & {task.id for task in fourth}


def test_the_tasks_of_an_update_that_is_made_are_forgotten() -> None:
    curriculum, drawn = Shuffled().start(TASK_SET, 7), DrawnTasks()
    for number in (1, 2, 3):
        drawn.draw(number, 1, curriculum)
    drawn.forget_until(2)
    assert list(drawn.state_dict(without=[])) == ["3"]
    assert drawn.state_dict(without=[3]) == {}
