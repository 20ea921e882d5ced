"""Filters: which steps may train. They see the whole table; groups still count what they drop.

A step that is dropped keeps its place in its groups: it still moves the baselines and scales of the others. It leaves
the loss with its tokens, every denominator that counts them (`Totals`), and the statistics over the tokens of the batch
(`Whitened`). A filter that reads the credit (`reads_credit`) is asked after those statistics, which still count what it
drops.
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
    """Drop the tasks whose attempts all did equally well: nothing tells them apart.

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476), dynamic sampling: keep a task iff 0 < correct < n. Choices: what is
    compared is the column `accuracy` where the table has it, else the return, since a length penalty would make equal
    answers differ; equal means equal, not a small deviation. A task with one attempt is dropped (`alone="keep"` keeps
    it, as verl's recipe does). Sampling more tasks in place of the dropped ones is the attempt plan's work.
    """

    drops_solved_groups: ClassVar[bool] = True
    alone: Literal["drop", "keep"] = "drop"
    """What happens to a task with one attempt."""

    def __call__(self, table: StepTable) -> BoolArray:
        kept = ~table.tasks.is_constant(find_scores(table))
        if self.alone == "keep":
            kept |= Segments.of(table.task[table.attempts.first]).size == 1
        return kept[table.task]


class Staleness(Part, slot="filter"):
    """Drop the attempts that weights too old have sampled: what they teach is about another policy.

        keep where age <= max_age,   age = version of the learner - oldest version that sampled the attempt

    Source: bounds on staleness in asynchronous training, such as AReaL's (Fu et al. 2025, arXiv:2505.24298). Choices:
    an attempt is as old as its oldest token, and all its steps go together. Old attempts are still compared with fresh
    ones: how well they did is known, only their tokens are off-policy.
    """

    needs_versions: ClassVar[bool] = True
    max_age: NonNegativeInt = 1
    """How many versions behind the learner an attempt may be; 0 = only what the current weights sampled."""

    def __call__(self, table: StepTable) -> BoolArray:
        oldest = table.attempts.high(table.column("age").astype(np.float64))[table.attempt]
        return oldest <= self.max_age


class OverlongMask(Part, slot="filter"):
    """Drop the responses that a limit on tokens cut off: a good thought that ran out of room is no bad thought.

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476, section 3.4), overlong filtering; TRL's
    `mask_truncated_completions`. Choices: by response, so that the other steps of an attempt train;
    `attempts="drop"` also drops every step of an attempt that the limit on steps cut off. What is dropped still counts
    in the statistics, as it does in the sources: the reward of a cut-off response is part of its group's mean.
    """

    attempts: Literal["keep", "drop"] = "keep"
    """What happens to attempts that the limit on steps cut off."""

    def __call__(self, table: StepTable) -> BoolArray:
        kept = ~np.asarray(table.column("cut"), dtype=np.bool_)
        if self.attempts == "drop":
            limited = (table.column("stop") == StopReason.TRUNCATED).astype(np.float64)
            kept &= table.attempts.sum(limited)[table.attempt] == 0
        return kept


class SmallCredit(Part, slot="filter"):
    """Drop the steps whose credit is too small to teach much, and leave their share of the gradient to the others.

        keep where |A| >= min_size

    Source: ours; methods that learn from the clearest comparisons alone choose like this. A step that was compared
    with nobody has credit 0, and goes too. It reads the credit, so it is asked once there is some: nothing that credit
    is made of changes, and the credit of what it drops stays written down.
    """

    reads_credit: ClassVar[bool] = True
    min_size: PositiveFloat
    """The smallest credit, positive or negative, that trains."""

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray:
        return np.abs(credit.values) >= self.min_size


def find_scores(table: StepTable) -> FloatArray:
    """What each step's attempt is judged by (S): its accuracy where the table has it, else its return."""
    return np.asarray(table.extra.get("accuracy", table.episode_return), dtype=np.float64)


# By what was solved: filters of tasks that all attempts solved or that none did, and groups of those that did.


class DropSolved(Part, slot="filter"):
    """Drop the tasks whose every attempt reached the best score: there is nothing left to learn from them.

    Source: NGRPO, which keeps the all-wrong groups and filters the all-correct ones. Choice: the score is the column
    `accuracy` where the table has it, else the return, since a length penalty would keep solved tasks in.
    """

    drops_solved_groups: ClassVar[bool] = True
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
    of: GrouperPart = ByTask()
    """Who would be compared with whom."""
    above: Finite = 0.5
    """The score above which an attempt is right."""

    def __call__(self, table: StepTable) -> IntArray:
        return np.where(_find_unshaped_scores(table) > self.above, table.ask_once(self.of), NOT_COMPARABLE)


def _find_unshaped_scores(table: StepTable) -> FloatArray:
    """What each step's attempt is judged by (S): its accuracy, else its outcome, else its rewards before shapers."""
    if "reward_alone" not in table.extra or "accuracy" in table.extra or "outcome" in table.extra:
        return find_scores(table)
    alone = table.extra["reward_alone"].astype(np.float64)  # NaN where no shaper added anything
    return table.attempts.spread(table.attempts.sum(np.where(np.isnan(alone), table.reward, alone)))


# Admissions: which attempts of a group are compared at all.
#
# An attempt that is not admitted leaves the statistics too: baselines, scales, ranks and counts are those of the
# others. Filters differ: what they drop still moves the numbers of its group, and only does not train.


class WithoutTruncated(Part, slot="admission"):
    """Leave out the attempts that a limit on steps or tokens cut off: how they would have ended is not known.

    Ours, after the overlong filtering of DAPO (Yu et al. 2025, arXiv:2503.14476), which keeps such attempts in the
    statistics (`overlong_mask`). Choice: where all attempts of a group were cut off, none is left, and the update goes
    on without the group.
    """

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        return [attempt for attempt in group if attempt.stop is not StopReason.TRUNCATED]


class AtMost(Part, slot="admission"):
    """Compare at most so many attempts of a group, drawn evenly; the others were played and are left out.

    Ours: groups of one size, whatever a plan or a later round brought, so that scales that depend on the number of
    members do not differ between tasks. Those that are drawn keep their order.
    """

    attempts: Count
    """Attempts that are compared."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        if len(group) <= self.attempts:
            return group
        generator = draw("at_most", group[0].task.id)
        drawn = sorted(generator.choice(len(group), self.attempts, replace=False).tolist())
        return [group[number] for number in drawn]
