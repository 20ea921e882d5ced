"""By what was solved: filters of tasks that all attempts solved or that none did, and groups of those that did."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import GrouperPart
from groupwise.core.segments import NOT_COMPARABLE, BoolArray, FloatArray, IntArray
from groupwise.core.step_table import StepTable
from groupwise.groups.by_task import ByTask
from groupwise.groups.filters import find_scores


class DropSolved(Part, slot="filter"):
    """Drop the tasks whose every attempt reached the best score: there is nothing left to learn from them.

    Source: NGRPO, which keeps the all-wrong groups and filters the all-correct ones. Choice: the score is the column
    `accuracy` where the table has it, else the return, since a length penalty would keep solved tasks in.
    """

    drops_solved_groups: ClassVar[bool] = True
    """It leaves out tasks that every attempt solved."""
    best: float = 1.0
    """The score that counts as solved."""

    def __call__(self, table: StepTable) -> BoolArray:
        # A sum of rewards may miss the best by its last digit.
        missed = find_scores(table) < self.best - 1e-9 * max(1.0, abs(self.best))
        return table.tasks.sum(missed.astype(np.float64))[table.task] > 0


class DropFailed(Part, slot="filter"):
    """Drop the tasks that no attempt solved: there is nothing to imitate.

    Source: ours, for methods that learn from solved groups and would still sample dynamically (after ConciseR). Choice:
    an attempt solved its task if its score is `best`: the column `accuracy` where the table has it, else what it earned
    before shapers, since a charge for length must not make a solved task a failed one. Where the environment says
    itself whether an answer is right (the fact `exact`), and there is no `accuracy`, that decides in place of a score.
    """

    best: float = 1.0
    """The score that counts as solved."""

    def __call__(self, table: StepTable) -> BoolArray:
        if "exact" in table.extra and "accuracy" not in table.extra:
            solved = np.array([flag is True for flag in table.extra["exact"].tolist()], dtype=np.bool_)
        else:
            solved = _find_unshaped_scores(table) >= self.best - 1e-9 * max(1.0, abs(self.best))
        return table.tasks.sum(solved.astype(np.float64))[table.task] > 0


class AmongSolved(Part, slot="grouper"):
    """Another grouper's groups without the steps of attempts that failed: those are compared with nobody.

    Source: HDPO (2026, arXiv:2604.08545), whose tool economy is compared among correct rollouts alone. Choices: an
    attempt is right where its score is above `above`; the score is the column `accuracy` where the table has it, else
    what the attempt earned before shapers. A lone right attempt has no peers.
    """

    needs_solved_groups: ClassVar[bool] = True
    """It says something about groups that are solved by every attempt."""
    of: GrouperPart = ByTask()
    """Who would be compared with whom."""
    above: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    """The score above which an attempt is right."""

    def __call__(self, table: StepTable) -> IntArray:
        return np.where(_find_unshaped_scores(table) > self.above, table.ask_once(self.of), NOT_COMPARABLE)


def _find_unshaped_scores(table: StepTable) -> FloatArray:
    """What each step's attempt is judged by (S): its accuracy, else its outcome, else its rewards before shapers."""
    if "reward_alone" not in table.extra or "accuracy" in table.extra or "outcome" in table.extra:
        return find_scores(table)
    alone = table.extra["reward_alone"].astype(np.float64)  # NaN where no shaper added anything
    return table.attempts.spread(table.attempts.sum(np.where(np.isnan(alone), table.reward, alone)))
