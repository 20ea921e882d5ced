"""Past attempts: what is known of an attempt of an earlier update, and what joins a group of the present.

`journal.past_attempts` finds them by task, and reads them back whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from groupwise.data.segments import FloatArray, IntArray

if TYPE_CHECKING:
    from groupwise.data.records import Trajectory

MeasuredAgainst = Literal["stored", "recomputed"]
"""What the ratio of a recalled token is taken against: the log-prob it was sampled with, or the one it has now."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PastAttempt:
    """An attempt of an earlier update, as the index knows it: enough to choose it by.

    Worked example: attempt 3 at a task in update 7, solved, two steps through the states 91 and 17, reward at the end:
    score 1.0, states [91, 17], rewards [0, 1].
    """

    task: str
    """Id of its task."""
    number: int
    """The update it was sampled for."""
    attempt: int
    """Number of the attempt within that update."""
    version: int
    """Oldest version of the weights that sampled it."""
    origin: str
    """Where it came from: fresh, reflected, ..."""
    score: float
    """1 or 0 where the environment says whether the task was solved, else the sum of its rewards."""
    credit: float
    """The largest credit of its steps, by size."""
    states: IntArray
    """A digest of each step's state; 0 = not comparable."""
    rewards: FloatArray
    """The reward of each step, without what its group added."""


@dataclass(frozen=True, kw_only=True)
class RecalledAttempt:
    """A past attempt that joins a group of the present."""

    past: PastAttempt
    """What is recalled."""
    task: str
    """Id of the task whose group it joins."""
    why: str
    """What the group lacked, in words."""
    keeps_credit: bool = False
    """Whether it trains on the credit it had, outside all comparisons; else it is compared anew."""
    ratio: MeasuredAgainst = "stored"
    """Whether its tokens are measured against the policy that sampled them, or that of the present: then every ratio
    begins at 1, and nothing corrects for how far the policy has moved."""
    trajectory: Trajectory | None = None
    """The attempt itself, once it was read."""
    log_ratio: float | None = None
    """Mean distance, in nats, between its tokens' log-probs now and when they were sampled; None = not measured."""
    logps_now: tuple[tuple[float, ...], ...] = field(default=())
    """What the policy of the present gives the tokens of each step, where they are measured against it; else empty."""
    credit: tuple[float, ...] = field(default=())
    """Credit of its steps in this update."""


def digest_states(trajectory: Trajectory) -> IntArray:
    """A digest of the state at each step; 0 where it is not comparable."""
    digests = []
    for step in trajectory.steps:
        digest = b""
        if step.state_key is not None:
            text = json.dumps(step.state_key, separators=(",", ":"), ensure_ascii=False)
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        digests.append(int.from_bytes(digest, "little", signed=True) or len(digest[:1]))  # 0 = not comparable
    return np.array(digests, dtype=np.int64)


def find_histories(states: IntArray, depth: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each step that has `depth` comparable states before it, with its key: these states and its own, oldest first."""
    for step in range(depth, len(states)):
        key = tuple(states[step - depth : step + 1].tolist())
        if 0 not in key:
            yield step, key


# What stateful parts remember of tasks: a number, or a row of numbers by the index of a step.
#
# Axes: M tasks, S steps.

Remembered = float | list[float]
"""Of one task: a number, or one for each index of a step. The last of a row is for all later steps too."""


def number_at(remembered: Remembered, index: int) -> float:
    """What is remembered for a step at this index of an attempt at the task."""
    return remembered[min(index, len(remembered) - 1)] if isinstance(remembered, list) else remembered


def spread_remembered(by_task: Sequence[Remembered], task: IntArray, index: IntArray) -> FloatArray:
    """Hand each step what is remembered of its task (M), by the step's task and its index in its attempt (S)."""
    if not any(isinstance(remembered, list) for remembered in by_task):
        return np.array(by_task, dtype=np.float64)[task]
    pairs = zip(task.tolist(), index.tolist(), strict=True)
    return np.array([number_at(by_task[number], place) for number, place in pairs], dtype=np.float64)
