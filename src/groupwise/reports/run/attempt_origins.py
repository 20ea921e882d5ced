"""Where the attempts of an update come from: which joined a group from elsewhere, and which attempt they go back to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groupwise.core.journal.journal import Journal
from groupwise.core.records import SAMPLED_ELSEWHERE, Origin, Task
from groupwise.core.trajectory_rows import make_rows
from groupwise.rollout.plans.requests import MARK


@dataclass(frozen=True, kw_only=True)
class ParentAttempt:
    """The attempt that an attempt goes back to.

    Worked example: attempt 8 of a group of eight was recalled from update 4, where it was attempt 0 at the same task,
    since every attempt had failed: number 4, attempt 0, why "every attempt failed".
    """

    number: int
    """The update that attempt was sampled for."""
    task: str
    """Id of its task."""
    attempt: int
    """Its number there."""
    why: str
    """What it was wanted for."""
    log_ratio: float | None = None
    """How far, in nats a token, the policy had moved away from it; None = not measured."""
    keeps_credit: bool = False
    """Whether it trains on the credit it had, outside all comparisons."""


def read_recalled_attempts(journal: Journal, number: int) -> list[dict[str, Any]]:
    """What an update recalled, as `Journal.trajectories` gives attempts, each with its `source`."""
    past_attempts, records = journal.past_attempts, []
    for row in past_attempts.list_recalled(number):
        past = past_attempts.find(row["from_task"], number=row["from_number"], attempt=row["from_attempt"])
        read = past_attempts.read(past)
        member = replace(read, task=Task(id=row["task"]), attempt=row["attempt"], origin=Origin.REPLAYED)
        source = ParentAttempt(
            number=past.number,
            task=past.task,
            attempt=past.attempt,
            why=row["why"],
            log_ratio=row["log_ratio"],
            keeps_credit=row["keeps_credit"],
        )
        records.append(
            {
                "task": row["task"],
                "attempt": row["attempt"],
                "stop": read.stop.value,
                "outcome": read.scores["return"],
                "success": read.scores.get("success"),
                "origin": Origin.REPLAYED.value,
                "error": None,
                # Through JSON, like the rows beside which it is compared: tuples become lists.
                "steps": json.loads(json.dumps(list(make_rows(member)))),
                "credit": row["credit"],
                "source": source,
            }
        )
    return records


def find_joined(attempts: Sequence[Mapping[str, Any]]) -> set[tuple[str, int]]:
    """Task and number of the attempts of an update that joined a group from elsewhere; the others are its own.

    Recalled attempts, guided successes that are told without their guidance, and guided attempts beside unguided ones
    have joined. Guided attempts in a group that their guidance made, or whose place they all took, are its own.
    """
    unguided = {record["task"] for record in attempts if record["origin"] not in SAMPLED_ELSEWHERE}
    joined = set()
    for record in attempts:
        task, origin = record["task"], record["origin"]
        is_retold = str(record.get("parent") or "").startswith(f"{task}{MARK}")
        is_beside = task in unguided and MARK not in task
        if origin == Origin.REPLAYED.value or (origin == Origin.GUIDED.value and (is_retold or is_beside)):
            joined.add((task, record["attempt"]))
    return joined


def find_parent(record: Mapping[str, Any], number: int) -> ParentAttempt | None:
    """The attempt that an attempt of an update goes back to; None where that is nothing, or was not recorded."""
    if "source" in record:
        recalled: ParentAttempt = record["source"]
        return recalled
    parent, origin = record.get("parent"), record["origin"]
    if not parent or origin not in (Origin.GUIDED.value, Origin.REFLECTED.value):
        return None
    # A past attempt is `update/task/attempt`, one of the same update `task/attempt`; anything else is not ours to read.
    rest, _, attempt = parent.rpartition("/")
    update, _, task = rest.partition("/")
    if not attempt.isdecimal():
        return None
    if origin == Origin.GUIDED.value and rest.startswith(f"{record['task']}{MARK}"):
        return ParentAttempt(
            number=number, task=rest, attempt=int(attempt), why="solved with guidance, told without it"
        )
    why = "shown in the prompt" if origin == Origin.REFLECTED.value else "it guided this one"
    if update.isdecimal() and task:
        return ParentAttempt(number=int(update), task=task, attempt=int(attempt), why=why)
    return ParentAttempt(number=number, task=rest, attempt=int(attempt), why=why)
