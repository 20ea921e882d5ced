"""Replay by history: steps that stand alone, or among equals, recall past attempts that came the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.journal.attempt_index import PastAttempts
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.past_attempts import MeasuredAgainst, PastAttempt, RecalledAttempt, digest_states, find_histories
from groupwise.core.records import Trajectory
from groupwise.core.segments import FloatArray, IntArray
from groupwise.groups.cross_context_replay import MaxAge, MaxLogRatio, Ring

Context = tuple[int, ...]
"""A state and the states before it, oldest first."""


class HistoryKeyedReplay(Part, slot="replay"):
    """Recall the past attempts that give most steps of a group somebody to be compared with.

    A step's context at depth d is its state and the d states before it. A context lacks a comparison where all steps of
    the group that stood in it earned the same from there on; one alone is the simplest case. A past attempt at the same
    task fills it where it went through the same context and earned something else. Attempts are recalled one by one,
    each time the one that fills the contexts of most steps, deeper contexts counting more (weight d + 1), until none
    fills any.

    Source: ours; it joins replay (R^3, arXiv:2601.19620) with the contexts of HGPO (arXiv:2602.22817). Whole attempts
    are recalled, so that their returns and histories are what they were.
    """

    depth: Annotated[int, Field(ge=0)] = 2
    """How many earlier states a context may hold."""
    max_attempts: Annotated[int, Field(ge=1)] = 2
    """How many past attempts a group may recall."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Discount of what is earned later, as in the credit."""
    ring: Ring = 64
    """Newest attempts at a task that are looked at."""
    max_age: MaxAge | None = None
    """Versions of the weights that a past attempt may lie back; None = any number."""
    max_log_ratio: MaxLogRatio | None = 1.0
    """How far, in nats a token, the policy may have moved away from a past attempt; None = however far."""
    ratio: MeasuredAgainst = "stored"
    """What the ratio of a recalled token is taken against: the log-prob it was `stored` with when it was sampled, or
    the one `recomputed` by the policy that samples now, so that it begins at 1."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], past_attempts: PastAttempts, *, version: int, draw: Draw
    ) -> list[RecalledAttempt]:
        return [attempt for group in groups for attempt in self._recall(group, past_attempts, version)]

    def _recall(self, group: Sequence[Trajectory], past_attempts: PastAttempts, version: int) -> list[RecalledAttempt]:
        task, since = group[0].task.id, 0 if self.max_age is None else version - self.max_age
        earned: dict[Context, set[float]] = {}
        passed: dict[Context, int] = {}
        for trajectory in group:
            rewards = np.array([step.reward for step in trajectory.steps])
            for context, gain in self._list_contexts(digest_states(trajectory), rewards):
                earned.setdefault(context, set()).add(gain)
                passed[context] = passed.get(context, 0) + 1
        lacking = {context for context, gains in earned.items() if len(gains) == 1}
        past = past_attempts.recent(task, max_attempts=self.ring, since=since) if lacking else []
        recalled: list[RecalledAttempt] = []
        while past and len(recalled) < self.max_attempts:
            filled = [self._find_filled(attempt, lacking, earned) for attempt in past]
            worth = [sum(len(context) * passed[context] for context in contexts) for contexts in filled]
            best = int(np.argmax(worth))  # of equals the newest: `recent` gives the newest first
            if not worth[best]:
                break
            why = _explain(filled[best])
            recalled.append(RecalledAttempt(past=past[best], task=task, why=why, ratio=self.ratio))
            lacking -= filled[best]
            del past[best]
        return recalled

    def _find_filled(self, past: PastAttempt, lacking: set[Context], earned: dict[Context, set[float]]) -> set[Context]:
        """The contexts in which an attempt of the past would differ from those of the present."""
        return {
            context
            for context, gain in self._list_contexts(past.states, past.rewards)
            if context in lacking and gain not in earned[context]
        }

    def _list_contexts(self, states: IntArray, rewards: FloatArray) -> Iterator[tuple[Context, float]]:
        """Each context of an attempt at each depth, with what it earned from there on."""
        gains = _compute_returns_to_go(rewards, self.gamma)
        for depth in range(self.depth + 1):
            for step, context in find_histories(states, depth):
                yield context, gains[step]


def _explain(filled: set[Context]) -> str:
    deepest = max(len(context) for context in filled) - 1
    return f"{len(filled)} contexts, up to depth {deepest}, had nobody to differ from"


def _compute_returns_to_go(rewards: FloatArray, gamma: float) -> list[float]:
    gains: list[float] = []
    for reward in reversed(rewards.tolist()):
        gains.append(reward + gamma * (gains[-1] if gains else 0.0))
    return gains[::-1]
