"""An update as its reader wants it: groups of attempts, attempts of steps, each with its credit and its company."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groupwise.core.errors import RecordError, nearest
from groupwise.reports.run.attempt_origins import Source, find_joined, recalled_attempts, source_of
from groupwise.reports.run.derived_credit import Company, Recredit, Underived, recredit, sizes_without_rescue
from groupwise.reports.run.responses import response_decoder
from groupwise.reports.run.run_folder import RunFolder

MOST_NAMES = 8
"""How many tasks an error lists."""

_Identity = tuple[str, int, int]


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
    flaw: str
    """What was wrong with it: malformed, refused, or both; invalid, where the journal does not tell; else empty."""
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
    added: float = 0.0
    """How much of its reward comparing the attempts of the group added."""


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
    source: Source | None = None
    """The attempt it goes back to: the one that was recalled, or is shown in its prompt; None = it is new."""
    set_aside_by: str = ""
    """Who kept it out of all comparisons, and why; empty = nobody."""
    asked_for: str = ""
    """What the plan asked for it with, beside the task; empty = nothing that its origin does not say."""

    @property
    def is_shaped(self) -> bool:
        """Whether comparing the attempts of the group added to its rewards."""
        return any(step.added for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class PlayedGroup:
    """The attempts at one task of an update."""

    task: str
    """Id of the task."""
    attempts: tuple[PlayedAttempt, ...]
    """The attempts that were sampled for it, by number."""
    joined: tuple[PlayedAttempt, ...] = ()
    """The attempts that joined it from elsewhere: past ones, and guided ones beside unguided ones."""
    size_without: float | None = None
    """Mean size of its steps' credit, had nothing joined it and nothing been added; None = as it is, or not known."""
    set_aside: tuple[PlayedAttempt, ...] = ()
    """The attempts that were played and took part in nothing."""
    underived: str = ""
    """Why the update's credit does not derive again, and what is shown instead, in a sentence; empty = it does."""

    @property
    def outcomes(self) -> list[float]:
        """Outcome of each attempt that was sampled for it."""
        return [attempt.outcome for attempt in self.attempts]

    @property
    def spread(self) -> float:
        """Standard deviation of the outcomes (population); exactly 0 where all are equal."""
        outcomes = self.outcomes
        if len(set(outcomes)) <= 1:
            return 0.0
        mean = math.fsum(outcomes) / len(outcomes)
        return math.sqrt(math.fsum((outcome - mean) ** 2 for outcome in outcomes) / len(outcomes))

    @property
    def steps(self) -> list[PlayedStep]:
        """The steps of the attempts that were sampled for it."""
        return [step for attempt in self.attempts for step in attempt.steps]

    @property
    def num_compared(self) -> int | None:
        """How many steps were compared; None = not known here."""
        flags = [step.compared for step in self.steps]
        return None if None in flags else sum(map(bool, flags))

    @property
    def teaches(self) -> bool:
        """Whether any step has credit, its own or one that joined."""
        return any(step.credit for attempt in self.members for step in attempt.steps)

    @property
    def members(self) -> tuple[PlayedAttempt, ...]:
        """Everybody who took part."""
        return self.attempts + self.joined

    @property
    def credit_size(self) -> float:
        """Mean size of its own steps' credit."""
        steps = self.steps
        return math.fsum(abs(step.credit) for step in steps) / max(len(steps), 1)

    def best(self) -> PlayedAttempt:
        """The attempt of highest outcome; among equals the shortest, then the first."""
        return min(
            self.attempts or self.joined or self.set_aside,
            key=lambda attempt: (-attempt.outcome, len(attempt.steps), attempt.attempt),
        )

    def worst(self) -> PlayedAttempt:
        """The attempt of lowest outcome; among equals the longest, then the last."""
        return max(
            self.attempts or self.joined or self.set_aside,
            key=lambda attempt: (-attempt.outcome, len(attempt.steps), attempt.attempt),
        )


def read_groups(folder: RunFolder, number: int) -> list[PlayedGroup]:
    """What was sampled for an update, by task; an error where the run has no such update."""
    trajectories = list(folder.journal.trajectories(number))
    if not trajectories and number not in folder.updates:
        raise RecordError(f"{folder.path}: there is no update {number}; {_updates(folder.updates)}")
    recalled, algorithm = recalled_attempts(folder.journal, number), folder.known_algorithm()
    states = folder.journal.states_before(number)
    derived = recredit(trajectories, algorithm, recalled, states)
    again = derived if isinstance(derived, Recredit) else None
    where = _compared_where(again)
    unknown = (None if again is None else False, ())  # who took part in no comparison was compared with nobody
    decode = response_decoder(folder.path)
    groups: dict[str, list[PlayedAttempt]] = {}
    for found in [*trajectories, *recalled]:
        steps = tuple(
            _step(row, credit, *where.get(_identity(row), unknown), decode)
            for row, credit in zip(found["steps"], found["credit"], strict=True)
        )
        groups.setdefault(found["task"], []).append(_attempt(found, steps, source_of(found, number)))
    aside: dict[str, list[PlayedAttempt]] = {}
    for found in folder.journal.set_aside(number):
        steps = tuple(_step(row, 0.0, False, (), decode) for row in found["steps"])
        attempt = _attempt(found | {"error": None}, steps, None)
        aside.setdefault(found["task"], []).append(replace(attempt, set_aside_by=found["set_aside_by"]))
    asked_for = folder.journal.asked_for(number)
    for attempts in (*groups.values(), *aside.values()):
        attempts[:] = [replace(each, asked_for=asked_for.get((each.task, each.attempt), "")) for each in attempts]
    joined = find_joined([*trajectories, *recalled])
    tasks = dict.fromkeys([*groups, *aside])
    played = [_group(task, groups.get(task, ()), aside.get(task, ()), joined) for task in tasks]
    if isinstance(derived, Underived):
        return [replace(group, underived=derived.sentence(number)) if group.steps else group for group in played]
    if not any(_was_changed(group) for group in played):
        return played
    sizes = sizes_without_rescue(trajectories, algorithm, states) or {}
    return [replace(group, size_without=sizes.get(group.task)) if _was_changed(group) else group for group in played]


def underived_words(groups: Iterable[PlayedGroup]) -> str:
    """What the groups of an update say where its credit does not derive again; empty = it does."""
    return next((group.underived for group in groups if group.underived), "")


def find_underived(folder: RunFolder) -> dict[int, Underived]:
    """The updates whose credit does not derive again from the journal, and why; those without a step have none."""
    algorithm, found = folder.known_algorithm(), dict[int, Underived]()
    for number in folder.updates:
        trajectories, recalled = list(folder.journal.trajectories(number)), recalled_attempts(folder.journal, number)
        again = recredit(trajectories, algorithm, recalled, folder.journal.states_before(number))
        if isinstance(again, Underived) and any(one["steps"] for one in trajectories):
            found[number] = again
    return found


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
    there = (*group.members, *group.set_aside)
    for attempt in there:
        if attempt.attempt == number:
            return attempt
    known = ", ".join(str(attempt.attempt) for attempt in there)
    raise RecordError(f"{where}, task {group.task!r}: there is no attempt {number}; there are {known}")


def _compared_where(again: Recredit | None) -> dict[_Identity, tuple[bool | None, tuple[Company, ...]]]:
    """Whether each step was compared, and with whom, by its identity."""
    if again is None:
        return {}
    found = zip(again.rows, again.credit.compared.tolist(), again.company(), strict=True)
    return {_identity(row): (compared, company) for row, compared, company in found}


def _identity(row: Mapping[str, Any]) -> _Identity:
    return row["task"], row["attempt"], row["index"]


def set_aside_words(group: PlayedGroup) -> str:
    """Which attempts were set aside, and by whom; empty where none was."""
    by: dict[str, list[str]] = {}
    for attempt in group.set_aside:
        by.setdefault(attempt.set_aside_by, []).append(str(attempt.attempt))
    return "; ".join(
        f"attempt{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} set aside by {who}"
        for who, numbers in by.items()
    )


def asked_for_words(group: PlayedGroup) -> list[str]:
    """What the plan asked for attempts of a group with, a line for all that were asked for alike."""
    by: dict[str, list[str]] = {}
    for attempt in (*group.members, *group.set_aside):
        if attempt.asked_for:
            by.setdefault(attempt.asked_for, []).append(str(attempt.attempt))
    return [
        f"attempt{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} {'were' if len(numbers) > 1 else 'was'} "
        f"asked for: {words}"
        for words, numbers in by.items()
    ]


def _group(
    task: str,
    attempts: Sequence[PlayedAttempt],
    set_aside: Sequence[PlayedAttempt],
    joined: Collection[tuple[str, int]],
) -> PlayedGroup:
    return PlayedGroup(
        task=task,
        attempts=tuple(attempt for attempt in attempts if (task, attempt.attempt) not in joined),
        joined=tuple(attempt for attempt in attempts if (task, attempt.attempt) in joined),
        set_aside=tuple(set_aside),
    )


def _was_changed(group: PlayedGroup) -> bool:
    """Whether somebody joined the group, or something was added to its rewards."""
    return bool(group.joined) or any(attempt.is_shaped for attempt in group.attempts)


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
        flaw=_flaw(row),
        cut=bool(row.get("cut", False)),
        reward=row["reward"],
        credit=credit,
        compared=compared,
        company=company,
        added=row["reward"] - row.get("reward_alone", row["reward"]),
    )


def _flaw(row: Mapping[str, Any]) -> str:
    said = {"malformed": row.get("well_formed"), "refused": row.get("accepted"), "invalid": row.get("valid")}
    return ", ".join(flaw for flaw, is_fine in said.items() if is_fine is False)


def _attempt(found: dict[str, Any], steps: tuple[PlayedStep, ...], source: Source | None) -> PlayedAttempt:
    return PlayedAttempt(
        task=found["task"],
        attempt=found["attempt"],
        stop=found["stop"],
        outcome=found["outcome"],
        success=found["success"],
        origin=found["origin"],
        error=found["error"],
        steps=steps,
        source=source,
    )


def _updates(numbers: Sequence[int]) -> str:
    return f"its updates run from {numbers[0]} to {numbers[-1]}" if numbers else "it has made none yet"
