"""Find a task by its id, or by the beginning of its id."""

from __future__ import annotations

from collections.abc import Iterable

from groupwise.system.errors import RecordError, list_names, nearest


def rank_match(wanted: str | None, group: str, task: str) -> int | None:
    """How well a group matches the id that a user gave. None = no match; the best rank wins.

    0: the id is the group's, or no id was given. 1: it is the id of the group's task. 2: it is the beginning of one of
    the two, or of the last part of one. What follows an `@`, such as the update of a run, must be equal.

    >>> group, task = "gridworld-train-314b59@2", "gridworld-train-314b59"
    >>> [rank_match(wanted, group, task) for wanted in (group, task, "314b", "gridworld-train-31@2", "314b@20")]
    [0, 1, 2, 2, None]
    """
    if wanted is None or wanted == group:
        return 0
    if wanted == task:
        return 1
    start, at, behind = wanted.rpartition("@")
    if at and group.endswith(f"@{behind}") and _begins(group.removesuffix(f"@{behind}"), start):
        return 2
    return 2 if _begins(group, wanted) or _begins(task, wanted) else None


def match_tasks(tasks: Iterable[str], wanted: str) -> list[str]:
    """The task with that id. If there is none: the tasks whose id, or the last part of it, begins with it."""
    ranks = {task: rank for task in tasks if (rank := rank_match(wanted, task, task)) is not None}
    return [task for task, rank in ranks.items() if rank == min(ranks.values())]


def find_task(tasks: Iterable[str], wanted: str, *, where: str) -> str:
    """The one task that `match_tasks` finds; an error if there is none, or several."""
    known = list(tasks)
    matching = match_tasks(known, wanted)
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise RecordError(f"{where}: there is no task {wanted!r}; {nearest(wanted, known)}")
    names = list_names(sorted(matching))
    raise RecordError(f"{where}: {len(matching)} task ids begin with {wanted!r}; give more of the id: {names}")


def _begins(task: str, start: str) -> bool:
    return task.startswith(start) or task.rpartition("-")[2].startswith(start)
