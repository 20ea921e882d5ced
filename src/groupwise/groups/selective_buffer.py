"""A buffer of attempts that had much to teach, for updates in which too little does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.history import History, Recalled, score_of
from groupwise.core.parts import Draw, Part
from groupwise.core.records import Trajectory
from groupwise.groups.cross_context_replay import MaxAge, MostLogRatio


class SelectiveBuffer(Part, slot="replay"):
    """Fill up an update with past attempts, drawn in proportion to the size of the credit they had.

        p_i = |A_i| / sum_j |A_j|   over the attempts of the last `max_age` versions with |A| > 1e-6

    Source: the selective sample buffer of Skywork R1V2 (2025, arXiv:2504.16656), which gives neither sizes nor rates.
    Choices: as many are recalled as lie in groups without spread, up to `share` of the update's; a past attempt keeps
    the credit it had and takes part in no comparison; it is measured against the log-probs it was sampled with.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Most recalled attempts, as a share of the update's own."""
    max_age: MaxAge = 4
    """Versions of the weights that a past attempt may lie back."""
    size: Annotated[int, Field(ge=1)] = 4096
    """Newest attempts that are looked at."""
    most_log_ratio: MostLogRatio | None = 1.0
    """How far, in nats a token, the policy may have moved away from a past attempt; None = however far."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], history: History, *, version: int, draw: Draw
    ) -> list[Recalled]:
        idle = sum(len(group) for group in groups if len({score_of(trajectory) for trajectory in group}) == 1)
        wanted = min(idle, int(self.share * sum(len(group) for group in groups)))
        # Attempts of update n were sampled by version n - 1.
        past = [one for one in history.newest(most=self.size, after=version - self.max_age) if one.credit > 1e-6]
        if not (wanted and past):
            return []
        weight = np.array([one.credit for one in past])
        chance = weight / weight.sum()
        taken = draw("buffer").choice(len(past), size=min(wanted, len(past)), replace=False, p=chance)
        why = f"{idle} attempts lay in groups without spread"
        return [Recalled(past=past[i], task=past[i].task, why=why, keeps_credit=True) for i in sorted(taken.tolist())]
