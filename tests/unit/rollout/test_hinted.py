"""The plan with a hint: whom it asks for, and what it tells again without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from groupwise import Origin, Task, Trajectory
from groupwise.methods.r3 import Reflection
from groupwise.rollout import Flat, Hinted, Played, PlayedRound
from tests.unit.pasts import journal, make_draw, rollout, update


class Tasks:
    """A tools that hands out the same two tasks."""

    tasks = (Task(id="hard"), Task(id="easy"))

    def fresh(self, num: int) -> list[Task]:
        return list(self.tasks[:num])

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def text(self, token_ids: object) -> str:
        return "nonsense"


def test_a_task_of_little_success_is_also_asked_for_with_hint(tmp_path: Path) -> None:
    past = [rollout(n, task=task, solved=task == "easy") for task in ("hard", "easy") for n in range(2)]
    plan = Hinted(plan=Flat(), hint=Reflection(prompt="terse"))
    past_rollouts = journal(tmp_path, update(1, *past)).past_rollouts
    first, second, third = plan.next(
        Played(update=2), 2, group_size=3, tools=Tasks(), past_rollouts=past_rollouts, draw=make_draw()
    )
    assert [(each.task.id, each.rollouts, each.hint_text) for each in (first, second)] == [
        ("hard", 3, ""),
        ("easy", 3, ""),
    ]
    assert (third.task.id, third.rollouts) == ("hard", 3)
    assert third.hint_text == "failed before : nonsense . now do otherwise ."
    assert third.parent in ("1/hard/0", "1/hard/1")
    assert third.origin is Origin.REFLECTED
    assert third.group_task.id.startswith("hard~")
    assert plan.words() == Reflection(prompt="terse").words()


def member(task: str, number: int, *, solved: bool = False, origin: Origin = Origin.FRESH) -> Trajectory:
    trajectory = rollout(number, task=task, solved=solved, origin=origin)
    steps = tuple(replace(step, unhinted_prompt_ids=(9,)) for step in trajectory.steps)
    return replace(trajectory, steps=steps) if origin is not Origin.FRESH else trajectory


def test_a_retold_success_is_numbered_after_whoever_else_joins() -> None:
    unhinted = [member("t", n) for n in range(2)]
    reflected = [member("t~1", n, solved=n == 1, origin=Origin.REFLECTED) for n in range(2)]
    joining = [member("t", n, origin=Origin.HINTED) for n in (2, 3)]
    plan = Hinted(plan=Flat(), hint=Reflection(to_unhinted_prompt=True))
    turn = PlayedRound(groups=[unhinted], hinted=[reflected], joining=[joining])
    *_, (retold,) = plan.choose(Played(update=1, rounds=[turn]), 1)
    assert (retold.task.id, retold.rollout, retold.parent) == ("t", 4, "t~1/1")
    assert retold.steps[0].prompt_ids == (9,)
    alone = PlayedRound(groups=[unhinted], hinted=[reflected])
    *_, (retold,) = plan.choose(Played(update=1, rounds=[alone]), 1)
    assert retold.rollout == 2
