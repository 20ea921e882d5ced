"""A buffer of past rollouts with large advantages, for updates with little learning signal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat

from groupwise.data.past_rollouts import PastRollout, ReplayedRollout
from groupwise.data.records import Trajectory, score_of
from groupwise.parts import Count, Draw, Part, PositiveShare
from groupwise.store.rollout_index import PastRollouts

Dialogue = tuple[str, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]]
"""A task, and the prompts and answers of a rollout at it."""


class SelectiveBuffer(Part, slot="replay"):
    """Fill an update with past rollouts, drawn in proportion to the size of their advantage.

        p_i = |A_i| / sum_j |A_j|   over the rollouts of the last `max_staleness` versions with |A| > 1e-6

    Source: the selective sample buffer of Skywork R1V2 (2025, arXiv:2504.16656), which gives neither sizes nor rates.
    Choices: one rollout is replayed for each rollout of a zero-variance group (equal scores), up to `share` of the
    update's rollouts. This is decided before advantages are computed. So methods with advantages in such groups (HGPO,
    or any with a length penalty) get replayed rollouts too. A past rollout keeps its advantage and takes part in no
    comparison; it trains whatever the filters say; its ratio is taken against the log-probs it was sampled with. Of
    rollouts of one task with the same prompts and responses, one is replayed. Copies show only when they are drawn, so
    a frequent response is drawn more often.
    """

    keeps_credit: ClassVar[bool] = True
    share: PositiveShare = 0.25
    """Largest fraction of the update's own rollouts that is replayed."""
    max_staleness: Count = 4
    """Largest staleness of a past rollout, in policy versions."""
    size: Count = 4096
    """Newest rollouts that are candidates."""
    max_log_ratio: PositiveFloat | None = 1.0
    """How far the policy may have moved from a past rollout, in nats per token; None = any distance."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], past_rollouts: PastRollouts, *, version: int, draw: Draw
    ) -> list[ReplayedRollout]:
        idle = sum(len(group) for group in groups if len({score_of(trajectory) for trajectory in group}) == 1)
        num_wanted = min(idle, int(self.share * sum(len(group) for group in groups)))
        # Rollouts of update n were sampled by version n - 1.
        past = [
            rollout
            for rollout in past_rollouts.newest(max_rollouts=self.size, after=version - self.max_staleness)
            if rollout.credit > 1e-6
        ]
        why = f"{idle} rollouts lay in groups without spread"
        return [
            ReplayedRollout(past=past[i], task=past[i].task, why=why, keeps_credit=True)
            for i in sorted(_draw_distinct(past, past_rollouts, min(num_wanted, len(past)), draw))
        ]


def _draw_distinct(past: Sequence[PastRollout], past_rollouts: PastRollouts, num_wanted: int, draw: Draw) -> list[int]:
    """Positions of the drawn rollouts; a copy of a drawn one is replaced by another draw."""
    weight = np.array([rollout.credit for rollout in past])
    drawn: dict[Dialogue, int] = {}
    for number in itertools.count():
        missing = min(num_wanted - len(drawn), int(np.count_nonzero(weight)))
        if not missing:
            return list(drawn.values())
        name = ("buffer", number) if number else ("buffer",)
        for i in draw(*name).choice(len(past), size=missing, replace=False, p=weight / weight.sum()).tolist():
            read = past_rollouts.read(past[i])
            said = tuple((step.prompt_ids, step.response_ids) for step in read.steps)
            drawn.setdefault((read.task.id, said), i)
            weight[i] = 0.0
    raise AssertionError("each round draws some")
