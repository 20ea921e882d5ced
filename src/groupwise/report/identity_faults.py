"""Checks of recorded rollouts: wrong ids, steps and states, with which groups would compare the wrong things.

Each check reads one chunk of a file with whole groups, and yields the rows of a fault and a description.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from groupwise.store import RolloutsChunk

MAX_EXAMPLES = 5
CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d:\d\d")
NUMBER = re.compile(r"\d+")

Found = Iterator[tuple[Iterable[int], str]]
"""Rows of a chunk, and the problem."""


@dataclass(frozen=True, kw_only=True)
class IdentityFault:
    """A problem in the file."""

    kind: str
    """The check that found it."""
    lines: tuple[int, ...]
    """Lines of the file."""
    found: str
    """The problem in words."""


@dataclass(frozen=True, kw_only=True)
class IdentityCheck:
    """A kind of fault."""

    kind: str
    severity: Literal["error", "warning"]
    """An error makes advantages wrong; a warning is allowed but probably wrong."""
    meaning: str
    """Why it matters and what to do."""
    find: FindFaults


@dataclass(frozen=True, eq=False)
class AttemptRows:
    """A chunk's rows by group and rollout, sorted by step index."""

    rollouts: RolloutsChunk
    rows: dict[Any, dict[Any, list[int]]] = field(init=False)

    def __post_init__(self) -> None:
        columns = self.rollouts.columns
        rows: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
        for row, (task, attempt) in enumerate(zip(columns["task"], columns["attempt"], strict=True)):
            rows[task][attempt].append(row)
        index, segment = columns["index"], columns.get("segment")
        for attempts in rows.values():
            for listed in attempts.values():
                listed.sort(key=lambda row: (index[row], segment[row] if segment else 0))
        object.__setattr__(self, "rows", rows)

    def column(self, name: str) -> Sequence[Any]:
        return self.rollouts.columns.get(name) or [None] * len(self.rollouts)

    def walk(self) -> Iterator[tuple[Any, Any, list[int]]]:
        """Group, id and rows of every rollout."""
        for task, attempts in self.rows.items():
            for attempt, rows in attempts.items():
                yield task, attempt, rows


FindFaults = Callable[[AttemptRows], Found]
CHECKS: list[IdentityCheck] = []
"""All checks, errors first."""


def _check(kind: str, severity: Literal["error", "warning"], meaning: str) -> Callable[[FindFaults], FindFaults]:
    def add(find: FindFaults) -> FindFaults:
        CHECKS.append(IdentityCheck(kind=kind, severity=severity, meaning=meaning, find=find))
        return find

    return add


@_check(
    "duplicated-row",
    "error",
    "A copied row counts twice in every statistic. Drop it, or number the parts of a step with `segment`.",
)
def _find_duplicated_rows(attempts: AttemptRows) -> Found:
    index, segment = attempts.column("index"), attempts.column("segment")
    for task, attempt, rows in attempts.walk():
        for before, row in pairwise(rows):
            if (index[before], segment[before]) == (index[row], segment[row]):
                what = f"group {task!r}, attempt {attempt!r}, index {index[row]} twice"
                yield (before, row), what


@_check(
    "two-first-observations",
    "error",
    "The attempts of a group were not attempts at one task: seed the environment by the task.",
)
def _find_two_first_observations(attempts: AttemptRows) -> Found:
    shown, state, index = attempts.column("first_observation"), attempts.column("state"), attempts.column("index")
    for task, by_attempt in attempts.rows.items():
        starts: dict[Any, int] = {}
        for rows in by_attempt.values():
            if index[rows[0]] == 0:
                observation = shown[rows[0]] if shown[rows[0]] is not None else state[rows[0]]
                if observation is not None:
                    starts.setdefault(observation, rows[0])
        if len(starts) > 1:
            yield starts.values(), f"group {task!r} starts from {len(starts)} observations"


@_check("two-outcomes", "error", "An outcome belongs to the attempt; put per-step amounts into `reward`.")
def _find_two_outcomes(attempts: AttemptRows) -> Found:
    outcome = attempts.column("outcome")
    for task, attempt, rows in attempts.walk():
        values = {outcome[row]: row for row in rows}
        if len(values) > 1:
            what = f"group {task!r}, attempt {attempt!r} has outcomes {sorted(values, key=str)}"
            yield values.values(), what


@_check("row-after-the-end", "error", "Steps after the end were not played: drop the rows of finished environments.")
def _find_rows_after_the_end(attempts: AttemptRows) -> Found:
    stop, index = attempts.column("stop"), attempts.column("index")
    for task, attempt, rows in attempts.walk():
        ended = [row for row in rows if stop[row] is not None and index[row] < index[rows[-1]]]
        if ended:
            yield ended[:1], f"group {task!r}, attempt {attempt!r} goes on after {stop[ended[0]]!r}"


@_check("gap-in-steps", "warning", "History cannot be read across a missing step; returns skip it. Record every step.")
def _find_gaps_in_steps(attempts: AttemptRows) -> Found:
    index = attempts.column("index")
    for task, attempt, rows in attempts.walk():
        seen = sorted({index[row] for row in rows})
        if seen != list(range(len(seen))):
            missing = next(i for i, number in enumerate(seen) if number != i)
            yield rows[:1], f"group {task!r}, attempt {attempt!r} has no step {missing} but has {seen[-1]}"


@_check(
    "outcome-not-in-rewards",
    "warning",
    "Step-level methods (GiGPO, HGPO) read rewards, which are all 0: put the outcome on the last step too.",
)
def _find_outcomes_without_rewards(attempts: AttemptRows) -> Found:
    outcome, reward = attempts.column("outcome"), attempts.column("reward")
    for task, by_attempt in attempts.rows.items():
        rows = [row for listed in by_attempt.values() for row in listed]
        if any(outcome[row] for row in rows) and not any(reward[row] for row in rows):
            yield rows[:1], f"group {task!r} has outcomes and no rewards"


@_check(
    "copied-attempt",
    "warning",
    "Padding copies inflate groups; if it is no copy, the sampler may be greedy or share its seed.",
)
def _find_copied_attempts(attempts: AttemptRows) -> Found:
    state, action, reward = attempts.column("state"), attempts.column("action"), attempts.column("reward")
    outcome = attempts.column("outcome")
    for task, by_attempt in attempts.rows.items():
        seen: dict[Any, Any] = {}
        for attempt, rows in by_attempt.items():
            content = tuple((state[row], action[row], reward[row], outcome[row]) for row in rows)
            if len(content) > 1 and content in seen:
                what = f"group {task!r}: attempt {attempt!r} repeats attempt {seen[content]!r} in all {len(rows)} rows"
                yield rows[:1], what
            seen.setdefault(content, attempt)


@_check(
    "counter-in-state",
    "warning",
    "A counter or clock in the state keeps equal states apart: strip it from the state key.",
)
def _find_counters_in_states(attempts: AttemptRows) -> Found:
    """Text states that would be equal without their numbers."""
    state, index = attempts.column("state"), attempts.column("index")
    for task, by_attempt in attempts.rows.items():
        rows = [row for listed in by_attempt.values() for row in listed if isinstance(state[row], str)]
        later = [row for row in rows if index[row] > 0]
        if len(later) < 8:
            continue
        exact = Counter(state[row] for row in rows)
        stripped = Counter(NUMBER.sub("#", state[row]) for row in rows)
        met = sum(exact[state[row]] > 1 for row in later)
        could_meet = sum(stripped[NUMBER.sub("#", state[row])] > 1 for row in later)
        if met <= 0.1 * len(later) and could_meet >= 0.5 * len(later):
            clock = " (they look like times)" if CLOCK.search(state[later[0]]) else ""
            what = f"group {task!r}: {met} of {len(later)} states meet, {could_meet} would without numbers{clock}"
            yield later[:1], what


@_check("no-state", "warning", "Methods that compare by state (GiGPO, HGPO) have nothing to work with: record `state`.")
def _find_missing_states(attempts: AttemptRows) -> Found:
    state = attempts.column("state")
    for task, by_attempt in attempts.rows.items():
        rows = [row for listed in by_attempt.values() for row in listed]
        if all(state[row] is None for row in rows):
            yield rows[:1], f"group {task!r} has no state on any of {len(rows)} rows"


@_check("lone-attempt", "warning", "One attempt has nobody to be compared with, or group ids were made per attempt.")
def _find_lone_attempts(attempts: AttemptRows) -> Found:
    for task, by_attempt in attempts.rows.items():
        if len(by_attempt) == 1:
            rows = next(iter(by_attempt.values()))
            yield rows[:1], f"group {task!r} has one attempt"


@_check(
    "several-versions", "warning", "The group's attempts come from several policies; keep log-probs and correct for it."
)
def _find_several_versions(attempts: AttemptRows) -> Found:
    version = attempts.column("version")
    for task, by_attempt in attempts.rows.items():
        seen = {version[row]: row for rows in by_attempt.values() for row in rows if version[row] is not None}
        if len(seen) > 1:
            yield seen.values(), f"group {task!r} mixes versions {sorted(seen)}"


@dataclass
class FaultTally:
    """Faults by kind, with a few examples each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[IdentityFault]] = field(default_factory=lambda: defaultdict(list))

    def add(self, rollouts: RolloutsChunk) -> None:
        attempts = AttemptRows(rollouts)
        for check in CHECKS:
            for rows, found in check.find(attempts):
                self.counts[check.kind] += 1
                if len(self.examples[check.kind]) < MAX_EXAMPLES:
                    lines = tuple(rollouts.lines[row] for row in rows)
                    self.examples[check.kind].append(IdentityFault(kind=check.kind, lines=lines, found=found))

    @property
    def has_errors(self) -> bool:
        return any(self.counts[check.kind] for check in CHECKS if check.severity == "error")
