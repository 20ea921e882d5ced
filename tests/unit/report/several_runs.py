"""Folders of several small runs: made-up metrics and evaluations, and settings that are decoded by nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from groupwise import methods
from groupwise.store.journal import Journal, Update
from tests.unit.evaluations import make_evaluated


def write_small_run(
    folder: Path,
    *,
    seed: int = 0,
    method: str = "grpo",
    updates: int = 3,
    wins: Mapping[int, int] | None = None,
    tasks: int = 4,
    task_set: str = "p",
    tags: Sequence[str] = ("easy", "hard"),
    with_costs: bool = True,
    with_success: bool = True,
    **changes: Any,
) -> Path:
    """Write a run; `wins` says how many of its tasks were solved at the evaluation after an update."""
    settings = {
        "seed": seed,
        "algorithm": methods.build(method).config(),
        "made_by": {"method": method},
        "env": {"kind": "household"},
        "model": {"kind": "tiny"},
        "training": {"updates": 3, "tasks": 2},
        "evaluation": {"split": "test", "tasks": tasks},
    } | changes
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    with Journal(folder / "journal.sqlite") as journal:
        for number in range(1, updates + 1):
            metrics = {"rollout/success": number / 10 + seed / 100, "rollout/return": float(number)}
            if with_costs:
                metrics |= {"rollout/total_steps": 10.0 + seed, "rollout/total_tokens": 100.0}
                metrics |= {"seconds/rollout": 2.0, "seconds/learn": 1.0}
            journal.write(Update(number=number, version=number, metrics=metrics))
        for number, solved in ({0: 1, 3: 2 + seed % 2} if wins is None else wins).items():
            journal.write_evaluation(
                [
                    make_evaluated(
                        number=number,
                        task=f"t{task}",
                        task_set=task_set,
                        tags=tags[task % len(tags)] if tags else "",
                        success=float(task < solved) if with_success else None,
                        outcome=float(task < solved),
                    )
                    for task in range(tasks)
                ]
            )
    return folder
