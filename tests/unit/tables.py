"""Short ways to write the small tables that the unit tests work out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from groupwise import StepTable


def table(names: str, *rows: Sequence[Any]) -> StepTable:
    """A table from its rows: `table("task rollout step reward", ("q", 0, 0, 1.0), ...)`."""
    return StepTable.from_columns(**columns(names, *rows))


def columns(names: str, *rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The same, as columns."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names.split())}


def single_steps(*returns: Sequence[float]) -> StepTable:
    """One task for each sequence of returns, named t0, t1, ...; each rollout has one step."""
    return table(
        "task rollout step reward",
        *((f"t{task}", i, 0, float(value)) for task, group in enumerate(returns) for i, value in enumerate(group)),
    )


def walks(*paths: Sequence[Any], rewards: Sequence[Sequence[float]] | None = None) -> StepTable:
    """One task "q"; each path is a rollout, given by its states. Without rewards, all are 0."""
    return table(
        "task rollout step state reward",
        *(
            ("q", rollout, index, state, float(rewards[rollout][index]) if rewards else 0.0)
            for rollout, path in enumerate(paths)
            for index, state in enumerate(path)
        ),
    )


def number_groups(grouper: Callable[[StepTable], Any], rows: StepTable) -> list[int]:
    """The group of each step, numbered by first appearance; -1 where it has none.

    Which number a group has is the grouper's own business; who shares one is not.
    """
    numbers: dict[int, int] = {-1: -1}
    return [numbers.setdefault(label, len(numbers) - 1) for label in grouper(rows).tolist()]
