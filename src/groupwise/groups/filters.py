"""Filters: which steps may train. They see the whole table; the statistics still count what they drop.

A step that is dropped keeps its place in its groups: it still moves the baselines and scales of the others. It leaves
the loss with its tokens and every denominator that counts them (`Totals`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from groupwise.core.parts import Part
from groupwise.core.records import StopReason
from groupwise.core.segments import BoolArray, Segments
from groupwise.core.step_table import StepTable


class DropPivot(Part, slot="filter"):
    """Drop, in each task, the one attempt that the median baseline is taken from: its credit is 0 by construction.

    Source: MC-GRPO, which samples one attempt more than it trains on. Choice: of several attempts at the median, the
    one with the lowest id.
    """

    def __call__(self, table: StepTable) -> BoolArray:
        first_step = table.attempts.first
        returns = table.episode_return[first_step]
        tasks = Segments.of(table.task[first_step])
        at_median = returns == tasks.spread(tasks.lower_median(returns), np.nan)
        pivots = np.flatnonzero(at_median)[::-1]
        pivot_of_task = np.empty(len(tasks), dtype=np.int64)
        pivot_of_task[tasks.label[pivots]] = pivots  # written last to first, so the lowest attempt stays
        kept = np.ones(len(table.attempts), dtype=np.bool_)
        kept[pivot_of_task] = False
        return kept[table.attempt]


class DropSolved(Part, slot="filter"):
    """Drop the tasks whose every attempt reached the best return: there is nothing left to learn from them.

    Source: NGRPO, which keeps the all-wrong groups and filters the all-correct ones.
    """

    best: float = 1.0
    """The return that counts as solved."""

    def __call__(self, table: StepTable) -> BoolArray:
        # A sum of rewards may miss the best return by its last digit.
        missed = (np.abs(table.episode_return - self.best) > 1e-9 * max(1.0, abs(self.best))).astype(np.float64)
        return table.tasks.sum(missed)[table.task] > 0


class ZeroSpread(Part, slot="filter"):
    """Drop the tasks whose attempts all did equally well: nothing tells them apart.

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476), dynamic sampling: keep a task iff 0 < correct < n. Choices: what is
    compared is the column `accuracy` where the table has it, else the return, since a length penalty would make equal
    answers differ; equal means equal, not a small deviation. A task with one attempt is dropped (`alone="keep"` keeps
    it, as verl's recipe does). Sampling more tasks in place of the dropped ones is the attempt plan's work.
    """

    alone: Literal["drop", "keep"] = "drop"
    """What happens to a task with one attempt."""

    def __call__(self, table: StepTable) -> BoolArray:
        scores = np.asarray(table.extra.get("accuracy", table.episode_return), dtype=np.float64)
        kept = ~table.tasks.is_constant(scores)
        if self.alone == "keep":
            tasks = Segments.of(table.task[table.attempts.first])
            kept |= tasks.size == 1
        return kept[table.task]


class Staleness(Part, slot="filter"):
    """Drop the attempts that weights too old have sampled: what they teach is about another policy.

        keep where age <= most,   age = version of the learner - oldest version that sampled the attempt

    Source: bounds on staleness in asynchronous training, such as AReaL's (Fu et al. 2025, arXiv:2505.24298). Choices:
    an attempt is as old as its oldest token, and all its steps go together. Old attempts are still compared with fresh
    ones: how well they did is known, only their tokens are off-policy.
    """

    most: Annotated[int, Field(ge=0)] = 1
    """How many versions behind the learner an attempt may be; 0 = only what the current weights sampled."""

    def __call__(self, table: StepTable) -> BoolArray:
        oldest = table.attempts.high(table.column("age").astype(np.float64))[table.attempt]
        return oldest <= self.most


class OverlongMask(Part, slot="filter"):
    """Drop the responses that were cut off at their most tokens: a good thought that ran out of room is no bad thought.

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
