"""Rollouts of earlier updates: what the index knows of them, and which of them join a group of this update.

`journal.past_rollouts` finds them by task and reads their trajectories.
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
"""The denominator of a replayed token's ratio: its log-prob when it was sampled, or its log-prob now."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PastRollout:
    """A rollout of an earlier update, with what is needed to choose it.

    Worked example: rollout 3 of a task in update 7 solved it in two steps, with the states 91 and 17 and a reward at
    the end: score 1.0, states [91, 17], rewards [0, 1].
    """

    task: str
    """Id of its task."""
    number: int
    """The update that it was sampled in."""
    rollout: int
    """Number of the rollout within that update."""
    version: int
    """Oldest policy version that sampled it."""
    origin: str
    """Its origin: fresh, reflected, ..."""
    score: float
    """1 or 0 if the environment says whether the task was solved, else the sum of its rewards."""
    credit: float
    """The advantage of its steps with the largest absolute value."""
    states: IntArray
    """A digest of each step's state; 0 = not comparable."""
    rewards: FloatArray
    """The reward of each step, without group reward shaping."""


@dataclass(frozen=True, kw_only=True)
class ReplayedRollout:
    """A past rollout that joins a group of this update."""

    past: PastRollout
    """The replayed rollout."""
    task: str
    """Id of the task of the group that it joins."""
    why: str
    """Why the group needed it, in words."""
    keeps_credit: bool = False
    """Whether it trains on its recorded advantages, outside all comparisons. Else it is compared again."""
    ratio: MeasuredAgainst = "stored"
    """Whether the ratio divides by the policy that sampled its tokens, or by the current one. With the current one,
    every ratio begins at 1, and nothing corrects for how far the policy has moved."""
    trajectory: Trajectory | None = None
    """Its trajectory, once it was read."""
    log_ratio: float | None = None
    """Mean difference, in nats, between the log-probs of its tokens now and when sampled; None = not computed."""
    logps_now: tuple[tuple[float, ...], ...] = field(default=())
    """Log-probs of the tokens of each step under the current policy, if `ratio` needs them; else empty."""
    credit: tuple[float, ...] = field(default=())
    """Advantages of its steps in this update."""


def digest_states(trajectory: Trajectory) -> IntArray:
    """A digest of the state at each step; 0 = not comparable."""
    digests = []
    for step in trajectory.steps:
        digest = b""
        if step.state_key is not None:
            text = json.dumps(step.state_key, separators=(",", ":"), ensure_ascii=False)
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        digests.append(int.from_bytes(digest, "little", signed=True) or len(digest[:1]))  # 0 = not comparable
    return np.array(digests, dtype=np.int64)


def find_histories(states: IntArray, depth: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each step with `depth` comparable states before it, and its key: these states and its own, oldest first."""
    for step in range(depth, len(states)):
        key = tuple(states[step - depth : step + 1].tolist())
        if 0 not in key:
            yield step, key


# What stateful parts remember of tasks: one number, or a list with one number per step index.
#
# Axes: M tasks, S steps.

Remembered = float | list[float]
"""For one task: one number, or one per step index. The last entry of a list is used for all later steps."""


def number_at(remembered: Remembered, index: int) -> float:
    return remembered[min(index, len(remembered) - 1)] if isinstance(remembered, list) else remembered


def spread_remembered(by_task: Sequence[Remembered], task: IntArray, index: IntArray) -> FloatArray:
    """The remembered number of each step (S), from what is remembered of each task (M)."""
    if not any(isinstance(remembered, list) for remembered in by_task):
        return np.array(by_task, dtype=np.float64)[task]
    pairs = zip(task.tolist(), index.tolist(), strict=True)
    return np.array([number_at(by_task[number], place) for number, place in pairs], dtype=np.float64)
