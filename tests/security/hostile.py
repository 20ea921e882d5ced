"""A run and a rollouts file in which every recorded text tries to speak to the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

from groupwise import Step, StopReason, Task, Trajectory, methods
from groupwise.store.journal import EvaluatedRollout, Journal, Update
from tests.unit.cli.files import row, write
from tests.unit.report.run_folders import settings

CODE = "\x1b]52;c;aGk=\x07\x9b2J\x1bP0q\x1b\\\x08\x7f\r\x00\u202egnp.exe\u2066\u200f\u2028\udc9b"
"""Writes to the clipboard, clears the screen, draws, moves back, and shows what follows from right to left."""
SENT = "\x1b\x07\x9b\x08\x7f\r\x00\u202e\u2066\u200f\u2028"
"""The characters of it that no output may hold."""
FOLDER = "run\x1b]0;title\x07\u202e"
"""A folder's name may hold all but a slash and a zero."""


def hostile(name: str) -> str:
    """A text that says what it is, and more; without what cannot be written as UTF-8."""
    return f"{name}{CODE[:-1]}[link=http://127.0.0.1]{name}[/link]"


def write_hostile_run(folder: Path, **changes: Any) -> Path:
    """The folder of a run of two updates, whose every text is hostile."""
    folder.mkdir(parents=True)
    config = settings(methods.hgpo(), env={"kind": hostile("env")}) | changes
    (folder / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    rollouts = [_rollout(hostile("task"), number) for number in range(3)]
    fault = _rollout(hostile("task"), 9, stop=StopReason.ERROR)
    with Journal(folder / "journal.sqlite") as journal:
        for number in (1, 2):
            journal.write(
                Update(
                    number=number,
                    version=number,
                    metrics={hostile("metric"): 1.0, "rollout/success": 0.5, f"seconds/{hostile('stage')}": 1.0},
                    trajectories=rollouts,
                    credit=[[0.5, -0.5] for _ in rollouts],
                    faults=[fault],
                )
            )
        for number in (0, 2):
            journal.write_evaluation([_make_row(number, place) for place in range(2)])
        journal.name_task_sets({hostile("split"): "a" * 64})
    return folder


def write_hostile_rollouts(path: Path) -> Path:
    """Rollouts whose tasks, rollouts, states and actions are hostile; with a fault that `check rollouts` finds."""
    rows = [
        row(hostile("task"), hostile(f"rollout{rollout}"), index, hostile(f"state{index}"), float(rollout == index))
        | {"action": hostile("action"), "observation": hostile(f"observation{rollout}")}
        for rollout in range(3)
        for index in range(2)
    ]
    return write(path, rows)


def _rollout(task: str, number: int, stop: StopReason = StopReason.TERMINATED) -> Trajectory:
    steps = [
        Step(
            index=index,
            reward=float(index * number % 2),
            state_key=hostile("state"),
            observation=hostile("observation"),
            action=hostile("action"),
            accepted=True,
            response_ids=(4, 5),
        )
        for index in range(2)
    ]
    return Trajectory(
        id=f"{task}/{number}",
        task=Task(id=task, env="household", split="train", seed=0, payload={}, tags=(hostile("tag"),)),
        rollout=number,
        steps=tuple(steps),
        scores={"success": 1.0, "return": 1.0},
        stop=stop,
        error=hostile("error"),
    )


def _make_row(number: int, place: int) -> EvaluatedRollout:
    return EvaluatedRollout(
        number=number,
        name=hostile("split"),
        split=hostile("split"),
        seed=0,
        task=hostile(f"task{place}"),
        rollout=0,
        task_set="b" * 64,
        tags=hostile("tag").replace(",", ""),
        stop="terminated",
        success=1.0,
        outcome=1.0,
        steps=2,
    )
