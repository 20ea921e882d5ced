"""Filters: which steps train. They see the whole table; groups still count what a filter drops.

A dropped step keeps its place in its groups: it still moves their baselines and scales. Its tokens leave the loss, all
denominators (`Totals`) and the statistics over the tokens of the batch (`Whitened`). A filter that reads the advantages
(`reads_credit`) runs after those statistics, so they still count what it drops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat

from groupwise.credit.groupers import ByTask
from groupwise.data.credit import Credit
from groupwise.data.records import StopReason, Trajectory
from groupwise.data.segments import NOT_COMPARABLE, BoolArray, FloatArray, IntArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Count, Finite, Part
from groupwise.parts.slots import Draw, GrouperPart


class ZeroSpread(Part, slot="filter"):
    """Drop the zero-variance groups: tasks whose rollouts all did equally well.

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476), dynamic sampling: keep a task iff 0 < correct < n. Choices: the
    column `accuracy` is compared if the table has it, else the return, because a length penalty makes equal answers
    differ. Equal means exactly equal, not a small standard deviation. A task with one rollout is dropped
    (`alone="keep"` keeps it, as verl's method does). To sample other tasks instead of the dropped ones, use a plan.
    """

    drops_solved_groups: ClassVar[bool] = True
    alone: Literal["drop", "keep"] = "drop"
    """Whether a task with one rollout is dropped."""

    def __call__(self, table: StepTable) -> BoolArray:
        kept = ~table.tasks.is_constant(find_scores(table))
        if self.alone == "keep":
            kept |= Segments.of(table.task[table.rollouts.first]).size == 1
        return kept[table.task]


class Staleness(Part, slot="filter"):
    """Drop the rollouts that too old policy versions sampled.

        keep where age <= max_staleness,   age = version of the learner - oldest version that sampled the rollout

    Source: bounds on staleness in asynchronous training, such as AReaL's (Fu et al. 2025, arXiv:2505.24298). Choices:
    the age of a rollout is that of its oldest token, and all its steps are dropped together. Old rollouts are still
    compared with fresh ones: their scores are valid, only their tokens are off-policy.
    """

    needs_versions: ClassVar[bool] = True
    max_staleness: NonNegativeInt = 1
    """Largest staleness of a rollout, in policy versions; 0 = only rollouts of the current weights."""

    def __call__(self, table: StepTable) -> BoolArray:
        oldest = table.rollouts.high(table.column("age").astype(np.float64))[table.rollout]
        return oldest <= self.max_staleness


class OverlongMask(Part, slot="filter"):
    """Drop the responses that the token limit cut off: a cut-off response need not be a wrong one.

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476, section 3.4), overlong filtering; TRL's
    `mask_truncated_completions`. Choices: by response, so the other steps of a rollout train; `rollouts="drop"` also
    drops every step of a rollout that the step limit cut off. What is dropped still counts in the statistics, as in the
    sources: the reward of a cut-off response is part of its group's mean.
    """

    rollouts: Literal["keep", "drop"] = "keep"
    """Whether rollouts that the step limit cut off are dropped too."""

    def __call__(self, table: StepTable) -> BoolArray:
        kept = ~np.asarray(table.column("cut"), dtype=np.bool_)
        if self.rollouts == "drop":
            limited = (table.column("stop") == StopReason.TRUNCATED).astype(np.float64)
            kept &= table.rollouts.sum(limited)[table.rollout] == 0
        return kept


class SmallCredit(Part, slot="filter"):
    """Drop the steps whose advantage is small; the others then have a larger fraction of the gradient.

        keep where |A| >= min_size

    Source: ours; methods that learn only from the clearest comparisons select like this. A step that was not compared
    has advantage 0 and is dropped too. The filter runs after the advantages are computed: it changes none of them, and
    those of dropped steps stay recorded.
    """

    reads_credit: ClassVar[bool] = True
    min_size: PositiveFloat
    """The smallest advantage, positive or negative, that trains."""

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray:
        return np.abs(credit.values) >= self.min_size


def find_scores(table: StepTable) -> FloatArray:
    """The score of each step's rollout (S): its accuracy if the table has it, else its return."""
    return np.asarray(table.extra.get("accuracy", table.episode_return), dtype=np.float64)


# Filters and groups by what was solved.


class DropSolved(Part, slot="filter"):
    """Drop the tasks whose rollouts all reached the best score: they have no learning signal.

    Source: NGRPO, which keeps the all-wrong groups and filters the all-correct ones. Choice: the score is the column
    `accuracy` if the table has it, else the return, because a length penalty would keep solved tasks.
    """

    drops_solved_groups: ClassVar[bool] = True
    best: float = 1.0
    """The score that counts as solved."""

    def __call__(self, table: StepTable) -> BoolArray:
        # A sum of rewards may miss the best by its last digit.
        missed = find_scores(table) < self.best - 1e-9 * max(1.0, abs(self.best))
        return table.tasks.sum(missed.astype(np.float64))[table.task] > 0


class DropFailed(Part, slot="filter"):
    """Drop the tasks that no rollout solved.

    Source: ours, for methods that learn from solved groups and still sample dynamically (after ConciseR). Choice: a
    rollout solved its task if its score is `best`. The score is the column `accuracy` if the table has it, else the
    reward before group reward shaping, because a length penalty must not make a solved task a failed one. If the
    environment says whether an answer is right (step info `exact`) and there is no `accuracy`, `exact` decides.
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
    """The groups of another grouper, without the steps of failed rollouts; those are not compared.

    Source: HDPO (2026, arXiv:2604.08545), which compares tool economy among correct rollouts alone. Choices: a rollout
    is right if its score is above `above`. The score is the column `accuracy` if the table has it, else the reward
    before group reward shaping. A single right rollout is the only member of its group.
    """

    needs_solved_groups: ClassVar[bool] = True
    of: GrouperPart = ByTask()
    """The groups before failed rollouts are taken out."""
    above: Finite = 0.5
    """The score above which a rollout is right."""

    def __call__(self, table: StepTable) -> IntArray:
        return np.where(_find_unshaped_scores(table) > self.above, table.ask_once(self.of), NOT_COMPARABLE)


def _find_unshaped_scores(table: StepTable) -> FloatArray:
    """The score of each step's rollout (S): its accuracy, else its final score, else its rewards before group reward
    shaping.
    """
    if "reward_alone" not in table.extra or "accuracy" in table.extra or "outcome" in table.extra:
        return find_scores(table)
    alone = table.extra["reward_alone"].astype(np.float64)  # NaN where no shaper added anything
    return table.rollouts.spread(table.rollouts.sum(np.where(np.isnan(alone), table.reward, alone)))


# Rollout filters: which rollouts of a group are compared at all.
#
# A dropped rollout leaves the statistics too: baselines, scales, ranks and counts are those of the others. What a
# filter drops still counts in its group; it only does not train.


class WithoutTruncated(Part, slot="rollout_filter"):
    """Leave out the rollouts that a step or token limit cut off: how they would have ended is not known.

    Ours, after the overlong filtering of DAPO (Yu et al. 2025, arXiv:2503.14476), which keeps such rollouts in the
    statistics (`overlong_mask`). Choice: if all rollouts of a group were cut off, the update continues without the
    group.
    """

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        return [rollout for rollout in group if rollout.stop is not StopReason.TRUNCATED]


class AtMost(Part, slot="rollout_filter"):
    """Compare at most this many rollouts of a group, drawn uniformly; the others are left out.

    Ours: groups have one size, whatever a plan or a later round brought. So scales that depend on the number of members
    do not differ between tasks. Drawn rollouts keep their order.
    """

    rollouts: Count
    """Rollouts that are compared."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        if len(group) <= self.rollouts:
            return group
        generator = draw("at_most", group[0].task.id)
        drawn = sorted(generator.choice(len(group), self.rollouts, replace=False).tolist())
        return [group[number] for number in drawn]
