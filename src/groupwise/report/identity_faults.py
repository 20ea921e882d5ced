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
    lines: tuple[int, ...]
    found: str


@dataclass(frozen=True, kw_only=True)
class IdentityCheck:
    """A kind of fault."""

    kind: str
    severity: Literal["error", "warning"]
    """An error makes advantages wrong; a warning is allowed but probably wrong."""
    meaning: str
    find: FindFaults


class RolloutRows:
    """A chunk's rows by group and rollout, sorted by step."""

    def __init__(self, rollouts: RolloutsChunk) -> None:
        self._chunk = rollouts
        self.rows: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
        columns = rollouts.columns
        for row, (task, rollout) in enumerate(zip(columns["task"], columns["rollout"], strict=True)):
            self.rows[task][rollout].append(row)
        index, segment = columns["step"], columns.get("segment")
        for _, _, listed in self.walk():
            listed.sort(key=lambda row: (index[row], segment[row] if segment else 0))

    def column(self, name: str) -> Sequence[Any]:
        return self._chunk.columns.get(name) or [None] * len(self._chunk)

    def walk(self) -> Iterator[tuple[Any, Any, list[int]]]:
        """Group, id and rows of every rollout."""
        for task, rollouts in self.rows.items():
            for rollout, rows in rollouts.items():
                yield task, rollout, rows


FindFaults = Callable[[RolloutRows], Found]
CHECKS: list[IdentityCheck] = []
"""All checks, errors first."""


def _check(severity: Literal["error", "warning"]) -> Callable[[FindFaults], FindFaults]:
    """A check by its function: the name is the kind, and the docstring says what the fault means."""

    def add(find: FindFaults) -> FindFaults:
        kind, meaning = find.__name__.replace("_", "-"), find.__doc__ or ""
        CHECKS.append(IdentityCheck(kind=kind, severity=severity, meaning=meaning, find=find))
        return find

    return add


@_check("error")
def duplicated_row(rollouts: RolloutRows) -> Found:
    """A copied row counts twice in every statistic. Drop it, or number the parts of a step with `segment`."""
    index, segment = rollouts.column("step"), rollouts.column("segment")
    for task, rollout, rows in rollouts.walk():
        for before, row in pairwise(rows):
            if (index[before], segment[before]) == (index[row], segment[row]):
                what = f"group {task!r}, rollout {rollout!r}, step {index[row]} twice"
                yield (before, row), what


@_check("error")
def two_first_observations(rollouts: RolloutRows) -> Found:
    """The rollouts of a group were not rollouts at one task: seed the environment by the task."""
    shown, state, index = rollouts.column("first_observation"), rollouts.column("state"), rollouts.column("step")
    for task, by_rollout in rollouts.rows.items():
        starts: dict[Any, int] = {}
        for rows in by_rollout.values():
            if index[rows[0]] == 0:
                observation = shown[rows[0]] if shown[rows[0]] is not None else state[rows[0]]
                if observation is not None:
                    starts.setdefault(observation, rows[0])
        if len(starts) > 1:
            yield starts.values(), f"group {task!r} starts from {len(starts)} observations"


@_check("error")
def two_outcomes(rollouts: RolloutRows) -> Found:
    """An outcome belongs to the rollout; put per-step amounts into `reward`."""
    outcome = rollouts.column("outcome")
    for task, rollout, rows in rollouts.walk():
        values = {outcome[row]: row for row in rows}
        if len(values) > 1:
            what = f"group {task!r}, rollout {rollout!r} has outcomes {sorted(values, key=str)}"
            yield values.values(), what


@_check("error")
def row_after_the_end(rollouts: RolloutRows) -> Found:
    """Steps after the end were not played: drop the rows of finished environments."""
    stop, index = rollouts.column("stop"), rollouts.column("step")
    for task, rollout, rows in rollouts.walk():
        ended = [row for row in rows if stop[row] is not None and index[row] < index[rows[-1]]]
        if ended:
            yield ended[:1], f"group {task!r}, rollout {rollout!r} continues after {stop[ended[0]]!r}"


@_check("warning")
def gap_in_steps(rollouts: RolloutRows) -> Found:
    """History cannot be read across a missing step; returns skip it. Record every step."""
    index = rollouts.column("step")
    for task, rollout, rows in rollouts.walk():
        seen = sorted({index[row] for row in rows})
        if seen != list(range(len(seen))):
            missing = next(i for i, number in enumerate(seen) if number != i)
            yield rows[:1], f"group {task!r}, rollout {rollout!r} has no step {missing} but has {seen[-1]}"


@_check("warning")
def outcome_not_in_rewards(rollouts: RolloutRows) -> Found:
    """Step-level methods (GiGPO, HGPO) read rewards, which are all 0: put the outcome on the last step too."""
    outcome, reward = rollouts.column("outcome"), rollouts.column("reward")
    for task, by_rollout in rollouts.rows.items():
        rows = [row for listed in by_rollout.values() for row in listed]
        if any(outcome[row] for row in rows) and not any(reward[row] for row in rows):
            yield rows[:1], f"group {task!r} has outcomes and no rewards"


@_check("warning")
def copied_rollout(rollouts: RolloutRows) -> Found:
    """Padding copies inflate groups; if it is no copy, the sampler may be greedy or share its seed."""
    state, action, reward = rollouts.column("state"), rollouts.column("action"), rollouts.column("reward")
    outcome = rollouts.column("outcome")
    for task, by_rollout in rollouts.rows.items():
        seen: dict[Any, Any] = {}
        for rollout, rows in by_rollout.items():
            content = tuple((state[row], action[row], reward[row], outcome[row]) for row in rows)
            if len(content) > 1 and content in seen:
                what = f"group {task!r}: rollout {rollout!r} repeats rollout {seen[content]!r} in all {len(rows)} rows"
                yield rows[:1], what
            seen.setdefault(content, rollout)


@_check("warning")
def counter_in_state(rollouts: RolloutRows) -> Found:
    """A counter or clock in the state keeps equal states apart: strip it from the state key."""
    state, index = rollouts.column("state"), rollouts.column("step")
    for task, by_rollout in rollouts.rows.items():
        rows = [row for listed in by_rollout.values() for row in listed if isinstance(state[row], str)]
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


@_check("warning")
def no_state(rollouts: RolloutRows) -> Found:
    """Methods that compare by state (GiGPO, HGPO) have nothing to work with: record `state`."""
    state = rollouts.column("state")
    for task, by_rollout in rollouts.rows.items():
        rows = [row for listed in by_rollout.values() for row in listed]
        if all(state[row] is None for row in rows):
            yield rows[:1], f"group {task!r} has no state on any of {len(rows)} rows"


@_check("warning")
def lone_rollout(rollouts: RolloutRows) -> Found:
    """The group has one rollout, so nothing is compared; or group ids were made per rollout."""
    for task, by_rollout in rollouts.rows.items():
        if len(by_rollout) == 1:
            rows = next(iter(by_rollout.values()))
            yield rows[:1], f"group {task!r} has one rollout"


@_check("warning")
def several_versions(rollouts: RolloutRows) -> Found:
    """The group's rollouts come from several policies; keep log-probs and correct for it."""
    version = rollouts.column("version")
    for task, by_rollout in rollouts.rows.items():
        seen = {version[row]: row for rows in by_rollout.values() for row in rows if version[row] is not None}
        if len(seen) > 1:
            yield seen.values(), f"group {task!r} mixes versions {sorted(seen)}"


@dataclass
class FaultTally:
    """Faults by kind, with a few examples each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[IdentityFault]] = field(default_factory=lambda: defaultdict(list))

    def add(self, chunk: RolloutsChunk) -> None:
        rollouts = RolloutRows(chunk)
        for check in CHECKS:
            for rows, found in check.find(rollouts):
                self.counts[check.kind] += 1
                if len(self.examples[check.kind]) < MAX_EXAMPLES:
                    lines = tuple(chunk.lines[row] for row in rows)
                    self.examples[check.kind].append(IdentityFault(kind=check.kind, lines=lines, found=found))

    @property
    def has_errors(self) -> bool:
        return any(self.counts[check.kind] for check in CHECKS if check.severity == "error")
