"""Filters: which steps may train. They see the whole table; groups still count what they drop.

A step that is dropped keeps its place in its groups: it still moves the baselines and scales of the others. It leaves
the loss with its tokens, every denominator that counts them (`Totals`), and the statistics over the tokens of the batch
(`Whitened`). A filter that reads the credit (`reads_credit`) is asked after those statistics, which still count what it
drops.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.core.credit import Credit
from groupwise.core.parts.part import Part
from groupwise.core.records import StopReason
from groupwise.core.segments import BoolArray, FloatArray, Segments
from groupwise.core.step_table import StepTable


class ZeroSpread(Part, slot="filter"):
    """Drop the tasks whose attempts all did equally well: nothing tells them apart.

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476), dynamic sampling: keep a task iff 0 < correct < n. Choices: what is
    compared is the column `accuracy` where the table has it, else the return, since a length penalty would make equal
    answers differ; equal means equal, not a small deviation. A task with one attempt is dropped (`alone="keep"` keeps
    it, as verl's recipe does). Sampling more tasks in place of the dropped ones is the attempt plan's work.
    """

    drops_solved_groups: ClassVar[bool] = True
    """It leaves out tasks that every attempt solved."""
    alone: Literal["drop", "keep"] = "drop"
    """What happens to a task with one attempt."""

    def __call__(self, table: StepTable) -> BoolArray:
        kept = ~table.tasks.is_constant(find_scores(table))
        if self.alone == "keep":
            tasks = Segments.of(table.task[table.attempts.first])
            kept |= tasks.size == 1
        return kept[table.task]


class Staleness(Part, slot="filter"):
    """Drop the attempts that weights too old have sampled: what they teach is about another policy.

        keep where age <= max_age,   age = version of the learner - oldest version that sampled the attempt

    Source: bounds on staleness in asynchronous training, such as AReaL's (Fu et al. 2025, arXiv:2505.24298). Choices:
    an attempt is as old as its oldest token, and all its steps go together. Old attempts are still compared with fresh
    ones: how well they did is known, only their tokens are off-policy.
    """

    needs_versions: ClassVar[bool] = True
    """It reads which version of the weights sampled an attempt, which not every engine says."""

    max_age: Annotated[int, Field(ge=0)] = 1
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
    min_size: Annotated[float, Field(gt=0)]
    """The smallest credit, positive or negative, that trains."""

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray:
        return np.abs(credit.values) >= self.min_size


def find_scores(table: StepTable) -> FloatArray:
    """What each step's attempt is judged by (S): its accuracy where the table has it, else its return."""
    return np.asarray(table.extra.get("accuracy", table.episode_return), dtype=np.float64)
