"""Replay by task: a group whose attempts all failed recalls a success, one whose attempts all succeeded a failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from groupwise.core.journal.attempt_index import PastAttempts
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.past_attempts import MeasuredAgainst, PastAttempt, RecalledAttempt
from groupwise.core.records import Trajectory, score_of

Ring = Annotated[int, Field(ge=1)]
MaxAge = Annotated[int, Field(ge=1)]
MaxLogRatio = Annotated[float, Field(gt=0)]


class CrossContextReplay(Part, slot="replay"):
    """Restore the spread of a group from the task's own past.

        all wrong: G + k past successes;   all right: G + k past failures;   otherwise: G

    Source: R^3 (2026, arXiv:2601.19620), cross-context replay. Choices, where the paper is silent: k is a quarter of
    the group; the newest update comes first, and within it the draw is even; only the newest `ring` attempts at a task
    are looked at; right and wrong go by what the environment says, or by the return, never by a reward that also pays
    for brevity. The paper stores no log-probs, so that by its letter a past attempt is measured against the policy of
    the present (`ratio="recomputed"`): its ratio begins at 1, and successes are imitated, failures unlearnt, at full
    force. Ours is the ratio to the policy that sampled it (`ratio="stored"`), under which what has become unlikely
    teaches little; and an attempt that the policy has moved too far away from is left out (`max_log_ratio`).
    """

    k: Annotated[int, Field(ge=0)] = 0
    """Past attempts a group; 0 = one for every four of its own, at least one."""
    ring: Ring = 64
    """Newest attempts at a task that are looked at."""
    max_age: MaxAge | None = None
    """Versions of the weights that a past attempt may lie back; None = any number."""
    max_log_ratio: MaxLogRatio | None = 1.0
    """How far, in nats a token, the policy may have moved away from a past attempt; None = however far."""
    ratio: MeasuredAgainst = "stored"
    """What the ratio of a recalled token is taken against: the log-prob it was `stored` with when it was sampled, or
    the one `recomputed` by the policy that samples now, so that it begins at 1."""
    solved_at: float = 0.5
    """Score from which on an attempt counts as right."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], past_attempts: PastAttempts, *, version: int, draw: Draw
    ) -> list[RecalledAttempt]:
        return [attempt for group in groups for attempt in self._recall(group, past_attempts, version, draw)]

    def _recall(
        self, group: Sequence[Trajectory], past_attempts: PastAttempts, version: int, draw: Draw
    ) -> list[RecalledAttempt]:
        right = {score_of(trajectory) >= self.solved_at for trajectory in group}
        if len(right) != 1:
            return []
        (is_right,) = right
        task, since = group[0].task.id, 0 if self.max_age is None else version - self.max_age
        past = past_attempts.recent(task, max_attempts=self.ring, since=since)
        other = [attempt for attempt in past if (attempt.score >= self.solved_at) is not is_right]
        why = "every attempt succeeded" if is_right else "every attempt failed"
        wanted = self.k or max(1, len(group) // 4)
        return [
            RecalledAttempt(past=attempt, task=task, why=why, ratio=self.ratio)
            for attempt in _sort_newest_first(other, draw, task)[:wanted]
        ]


def _sort_newest_first(past: Sequence[PastAttempt], draw: Draw, task: str) -> list[PastAttempt]:
    """Newer updates before older ones; within one, in random order."""
    place = draw("replay", task).permutation(len(past)).tolist()
    return [past[i] for i in sorted(range(len(past)), key=lambda i: (-past[i].number, place[i]))]
