"""The plan with guidance: whom it asks for, and what it tells again without guidance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from groupwise import Origin, Task, Trajectory
from groupwise.methods.r3 import Reflection
from groupwise.rollout import Flat, Guided, Played, PlayedRound
from tests.unit.pasts import attempt, journal, make_draw, update


class Tasks:
    """A tools that hands out the same two tasks."""

    tasks = (Task(id="hard"), Task(id="easy"))

    def fresh(self, num: int) -> list[Task]:
        return list(self.tasks[:num])

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def text(self, token_ids: object) -> str:
        return "nonsense"


def test_a_task_of_little_success_is_also_asked_for_with_guidance(tmp_path: Path) -> None:
    past = [attempt(n, task=task, solved=task == "easy") for task in ("hard", "easy") for n in range(2)]
    plan = Guided(plan=Flat(attempts=3), guidance=Reflection(prompt="terse"))
    past_attempts = journal(tmp_path, update(1, *past)).past_attempts
    first, second, third = plan.next(Played(update=2), 2, tools=Tasks(), past_attempts=past_attempts, draw=make_draw())
    assert [(each.task.id, each.attempts, each.guidance_text) for each in (first, second)] == [
        ("hard", 3, ""),
        ("easy", 3, ""),
    ]
    assert (third.task.id, third.attempts) == ("hard", 3)
    assert third.guidance_text == "failed before : nonsense . now do otherwise ."
    assert third.parent in ("1/hard/0", "1/hard/1")
    assert third.origin is Origin.REFLECTED
    assert third.group_task.id.startswith("hard~")
    assert plan.words() == Reflection(prompt="terse").words()


def member(task: str, number: int, *, solved: bool = False, origin: Origin = Origin.FRESH) -> Trajectory:
    trajectory = attempt(number, task=task, solved=solved, origin=origin)
    steps = tuple(replace(step, unguided_prompt_ids=(9,)) for step in trajectory.steps)
    return replace(trajectory, steps=steps) if origin is not Origin.FRESH else trajectory


def test_a_retold_success_is_numbered_after_whoever_else_joins() -> None:
    unguided = [member("t", n) for n in range(2)]
    reflected = [member("t~1", n, solved=n == 1, origin=Origin.REFLECTED) for n in range(2)]
    joining = [member("t", n, origin=Origin.GUIDED) for n in (2, 3)]
    plan = Guided(plan=Flat(), guidance=Reflection(to_unguided_prompt=True))
    turn = PlayedRound(groups=[unguided], guided=[reflected], joining=[joining])
    *_, (retold,) = plan.choose(Played(update=1, rounds=[turn]), 1)
    assert (retold.task.id, retold.attempt, retold.parent) == ("t", 4, "t~1/1")
    assert retold.steps[0].prompt_ids == (9,)
    alone = PlayedRound(groups=[unguided], guided=[reflected])
    *_, (retold,) = plan.choose(Played(update=1, rounds=[alone]), 1)
    assert retold.attempt == 2
