"""What many answers to some questions look like: right, cut off, how long, and whole groups of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def measure_answers(answers: Sequence[Any], limit: int) -> dict[str, float | None]:
    """Shares of answers and of questions under a limit, beyond which answers are cut off and count as wrong.

    `cut_of_right` and `cut_of_wrong` are what the limit cuts of the answers that are right or wrong without it, so that
    they say something where answers were sampled under a longer one. What there is nothing of is None.
    """
    rows = [_read_answer(answer, limit) for answer in answers]
    groups: dict[str, list[AnswerRow]] = {}
    for row in rows:
        groups.setdefault(row.task, []).append(row)
    rates = {task: statistics.fmean(row.counts for row in own) for task, own in groups.items()}
    return {
        "success": _mean([row.counts for row in rows]),
        "cut_off": _mean([row.is_cut for row in rows]),
        "cut_of_right": _mean([row.is_cut for row in rows if row.is_right]),
        "cut_of_wrong": _mean([row.is_cut for row in rows if not row.is_right]),
        "cut_where_none": _mean([row.is_cut for row in rows if rates[row.task] == 0]),
        "solve_none": _mean([rate == 0 for rate in rates.values()]),
        "solve_all": _mean([rate == 1 for rate in rates.values()]),
        "below_10": _mean([rate < 0.1 for rate in rates.values()]),
        "above_70": _mean([rate > 0.7 for rate in rates.values()]),
        "tokens_of_answer": _mean([row.tokens for row in rows]),
        "entropy": _mean([entropy for answer in answers for entropy in answer.steps[0].entropy]),
    }


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """An answer in a few words."""

    task: str
    tokens: int
    is_right: bool
    is_cut: bool

    @property
    def counts(self) -> bool:
        """Whether it is right within the limit."""
        return self.is_right and not self.is_cut


def _read_answer(answer: Any, limit: int) -> AnswerRow:
    step = answer.steps[0]
    num = len(step.response_ids)
    return AnswerRow(
        task=answer.task.id,
        tokens=min(num, limit),
        is_right=answer.scores["success"] > 0,
        is_cut=step.cut or num > limit,
    )


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 5) if values else None
