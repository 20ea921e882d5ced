"""Which update's policy is the best, and when nothing better is to be waited for: from evaluations, without torch.

The best has the highest success on the run's own panel; of equals it is the earliest.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from groupwise.core.journal.evaluations import EvaluatedAttempt
from groupwise.evaluation.settings import EvaluationConfig
from groupwise.evaluation.verdict import PanelScore, make_verdict


def find_best_number(
    rows: Sequence[EvaluatedAttempt], settings: EvaluationConfig, among: Container[int] | None = None
) -> int | None:
    """After which update the policy did best on the run's panel, of equals the earliest; None = it was not played.

    `among` are the updates that count; None = all.
    """
    scores = [score for score in _list_scores(rows, settings) if among is None or score.number in among]
    return max(scores, key=lambda score: score.value).number if scores else None


def is_out_of_patience(rows: Sequence[EvaluatedAttempt], settings: EvaluationConfig) -> bool:
    """Whether the last evaluations, as many as the run has patience for, were all no better than one before."""
    best = find_best_number(rows, settings)
    if not settings.patience or best is None:
        return False
    return sum(score.number > best for score in _list_scores(rows, settings)) >= settings.patience


def _list_scores(rows: Sequence[EvaluatedAttempt], settings: EvaluationConfig) -> Sequence[PanelScore]:
    """The evaluations of the run's panel, by update."""
    if not any(row.split == settings.split for row in rows):
        return ()
    return make_verdict(rows, settings.split).scores
