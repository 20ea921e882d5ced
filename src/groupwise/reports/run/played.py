"""An update as its reader wants it: groups of attempts, attempts of steps, each with its credit and its company."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core.errors import RecordError, nearest
from groupwise.reports.run.recredit import Company, recredit
from groupwise.reports.run.responses import response_decoder
from groupwise.reports.run.run_folder import RunFolder

MOST_NAMES = 8
"""How many tasks an error lists."""


@dataclass(frozen=True, kw_only=True)
class PlayedStep:
    """One exchange with the environment, and what came of it."""

    index: int
    """Position in the attempt, from 0."""
    observation: str
    """What the environment showed."""
    action: str
    """What was done."""
    response: str
    """What the model said, where that is more than the action and can be decoded; else empty."""
    valid: bool
    """Whether the action could be used."""
    cut: bool
    """Whether the response was cut off before it ended."""
    reward: float
    """Reward of the step."""
    credit: float
    """Its credit, as the journal holds it."""
    compared: bool | None
    """Whether anybody else was in its groups; None = not known here."""
    company: tuple[Company, ...]
    """Whom it was compared with, group by group; empty where that is not known here."""


@dataclass(frozen=True, kw_only=True)
class PlayedAttempt:
    """An attempt at a task."""

    task: str
    """Id of the task."""
    attempt: int
    """Number of the attempt."""
    stop: str
    """Why it ended."""
    outcome: float
    """Its outcome, or the sum of its rewards."""
    success: float | None
    """1 = solved, 0 = not; None where the environment does not say."""
    origin: str
    """Where it came from."""
    error: str | None
    """What failed, if anything did."""
    steps: tuple[PlayedStep, ...]
    """Its steps."""


@dataclass(frozen=True, kw_only=True)
class PlayedGroup:
    """The attempts at one task of an update."""

    task: str
    """Id of the task."""
    attempts: tuple[PlayedAttempt, ...]
    """The attempts, by number."""

    @property
    def outcomes(self) -> list[float]:
        """Outcome of each attempt."""
        return [attempt.outcome for attempt in self.attempts]

    @property
    def spread(self) -> float:
        """Standard deviation of the outcomes (population); exactly 0 where all are equal."""
        outcomes = self.outcomes
        if len(set(outcomes)) == 1:
            return 0.0
        mean = math.fsum(outcomes) / len(outcomes)
        return math.sqrt(math.fsum((outcome - mean) ** 2 for outcome in outcomes) / len(outcomes))

    @property
    def steps(self) -> list[PlayedStep]:
        """The steps of all attempts."""
        return [step for attempt in self.attempts for step in attempt.steps]

    @property
    def num_compared(self) -> int | None:
        """How many steps were compared; None = not known here."""
        flags = [step.compared for step in self.steps]
        return None if None in flags else sum(map(bool, flags))

    @property
    def teaches(self) -> bool:
        """Whether any step has credit."""
        return any(step.credit for step in self.steps)

    def best(self) -> PlayedAttempt:
        """The attempt of highest outcome; among equals the shortest, then the first."""
        return min(self.attempts, key=lambda attempt: (-attempt.outcome, len(attempt.steps), attempt.attempt))

    def worst(self) -> PlayedAttempt:
        """The attempt of lowest outcome; among equals the longest, then the last."""
        return max(self.attempts, key=lambda attempt: (-attempt.outcome, len(attempt.steps), attempt.attempt))


def read_groups(folder: RunFolder, number: int) -> list[PlayedGroup]:
    """What was sampled for an update, by task; an error where the run has no such update."""
    trajectories = list(folder.journal.trajectories(number))
    if not trajectories and number not in folder.updates:
        raise RecordError(f"{folder.path}: there is no update {number}; {_updates(folder.updates)}")
    again = recredit(trajectories, folder.known_algorithm())
    num_rows = sum(len(found["steps"]) for found in trajectories)
    company = again.company() if again else [()] * num_rows
    compared: Sequence[bool | None] = again.credit.compared.tolist() if again else [None] * num_rows
    decode = response_decoder(folder.path)
    groups: dict[str, list[PlayedAttempt]] = {}
    first = 0
    for found in trajectories:
        last = first + len(found["steps"])
        steps = tuple(
            _step(row, credit, flag, others, decode)
            for row, credit, flag, others in zip(
                found["steps"], found["credit"], compared[first:last], company[first:last], strict=True
            )
        )
        groups.setdefault(found["task"], []).append(_attempt(found, steps))
        first = last
    return [PlayedGroup(task=task, attempts=tuple(attempts)) for task, attempts in groups.items()]


def find_task(tasks: Iterable[str], wanted: str, *, where: str) -> str:
    """A task by its id, or by the beginning of its id or of the id's last part, if that names one task only."""
    known = list(tasks)
    if wanted in known:
        return wanted
    found = [task for task in known if task.startswith(wanted) or task.rpartition("-")[2].startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise RecordError(f"{where}: there is no task {wanted!r}; {nearest(wanted, known)}")
    rest = ", ..." if len(found) > MOST_NAMES else ""
    raise RecordError(
        f"{where}: {wanted!r} begins {len(found)} tasks; give more of the id: {', '.join(found[:MOST_NAMES])}{rest}"
    )


def find_attempt(group: PlayedGroup, number: int, *, where: str) -> PlayedAttempt:
    """An attempt of a group by its number."""
    for attempt in group.attempts:
        if attempt.attempt == number:
            return attempt
    known = ", ".join(str(attempt.attempt) for attempt in group.attempts)
    raise RecordError(f"{where}, task {group.task!r}: there is no attempt {number}; there are {known}")


def _step(
    row: dict[str, Any],
    credit: float,
    compared: bool | None,
    company: tuple[Company, ...],
    decode: Callable[[Sequence[int]], str] | None,
) -> PlayedStep:
    action = str(row.get("action") or "")
    said = decode(row["response_ids"]) if decode and row.get("response_ids") else ""
    return PlayedStep(
        index=row["index"],
        observation=str(row.get("observation") or ""),
        action=action,
        response="" if said.lower() == action.lower() else said,
        valid=bool(row.get("valid", True)),
        cut=bool(row.get("cut", False)),
        reward=row["reward"],
        credit=credit,
        compared=compared,
        company=company,
    )


def _attempt(found: dict[str, Any], steps: tuple[PlayedStep, ...]) -> PlayedAttempt:
    return PlayedAttempt(
        task=found["task"],
        attempt=found["attempt"],
        stop=found["stop"],
        outcome=found["outcome"],
        success=found["success"],
        origin=found["origin"],
        error=found["error"],
        steps=steps,
    )


def _updates(numbers: Sequence[int]) -> str:
    return f"its updates run from {numbers[0]} to {numbers[-1]}" if numbers else "it has made none yet"
