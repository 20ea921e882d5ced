"""What a run says where its loss holds attempts against each other and an update has no pair."""

from __future__ import annotations

import logging

from groupwise.core.totals import Totals
from groupwise.training.run import Run

_log = logging.getLogger(__name__)

METRIC = "learner/pairs"
"""How many pairs an update has."""


def report_missing_pairs(run: Run, number: int, totals: Totals) -> None:
    """Log a line where an update has no pair, unless the update before had none either.

    It is no error: attempts at hard tasks may all fail for a while. Where there never can be a pair, the run is refused
    before it begins (`check_attempts` of the pairing).
    """
    if run.config.algorithm.pairing is None or totals.pairs or dict(run.journal.curve(METRIC)).get(number - 1) == 0:
        return
    _log.warning(
        f"update {number}: no task has two attempts that train and did differently, so that the loss has no pair to "
        f"learn from; while {METRIC} stays 0 nothing is learnt, so give tasks that some attempts solve and some do "
        "not, a graded reward, or more attempts (rollout.plan.attempts)"
    )
