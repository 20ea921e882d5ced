from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from groupwise.data.column_checks import code_by_first_seen, code_keys
from groupwise.data.credit import Credit, Shared
from groupwise.data.segments import NOT_COMPARABLE, IntArray, Segments, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.methods.rloo import rloo
from groupwise.parts import Algorithm, EstimatorPart, GrouperPart, Part


@method
def salt(
    *,
    history: int = 1,
    next_state: bool = True,
    count: Literal["rollout", "step"] = "rollout",
    base: Literal["grpo", "rloo"] = "grpo",
) -> Algorithm:
    """SALT (2025, arXiv:2510.20022): steps that several rollouts share get their mean advantage, others keep their own.

    A_{i,t} = mean of A_j over the rollouts j through edge e_{i,t}, where two or more pass it, else A_i

    Choices (the paper's merge rule was not found, so these are ours): an edge is the last `history` + 1 states, the
    action and the next state; each rollout counts once. Reads the column `action`. Loss as for the base.
    """
    credit = grpo() if base == "grpo" else rloo()
    return Algorithm(
        advantage=Merged(of=credit.advantage, by=ByEdge(history=history, next_state=next_state), count=count),
        loss=credit.loss,
    )


class Merged(Part, slot="estimator"):
    """Give the steps of a group their mean advantage if it has at least two rollouts; others keep their own.

    Source: SALT, arXiv:2510.20022. Choice: a rollout with several steps in the group counts once, with its mean over
    them (`count="rollout"`), or once per step (`count="step"`).
    """

    of: EstimatorPart
    """The advantages that are averaged."""
    by: GrouperPart
    """Which steps are averaged."""
    count: Literal["rollout", "step"] = "rollout"
    """What counts once in the mean."""

    def __call__(self, table: StepTable) -> Credit:
        inner, label = self.of(table).trace, table.ask_once(self.by)
        passes = Segments.of(pair_labels(label, table.rollout))
        rollouts = Segments.of(label[passes.first])
        groups = Segments.of(label)
        met = np.append(rollouts.size >= 2, False)[groups.label]
        once = self.count == "rollout"
        mean = rollouts.mean(passes.mean(inner.values)) if once else groups.mean(inner.values)
        trace = Shared(
            values=np.where(met, groups.spread(mean), inner.values),
            compared=inner.compared,
            label=np.where(met, groups.label, NOT_COMPARABLE),
            of=inner,
            part=self,
        )
        return Credit.of(table, trace)


BOUNDARY = 0
"""Code before a rollout's first step and after its last."""


class ByEdge(Part, slot="grouper"):
    """Group steps with equal last states, action and next state (SALT's merged edges).

        e = (norm(s_{t-h}), ..., norm(s_t), norm(a_t), norm(s_{t+1}))

    norm() lower-cases text and collapses its white space. Before the first step and after the last is a boundary.

    Source: SALT, arXiv:2510.20022, which leaves the merge key open. Choices: h = 1; the next state is part of the key,
    so equal actions with different effects stay separate. If a state or action is None, or a row inside the window is
    missing, the step stays unmerged.
    """

    history: NonNegativeInt = 1
    """How many earlier states must be equal too."""
    next_state: bool = True
    """Whether the next state must be equal; without it, the random outcomes of an action are merged."""

    def __call__(self, table: StepTable) -> IntArray:
        state = _code_normal_keys(table.state_keys, table.state)
        label = pair_labels(table.task, state)
        position = np.arange(len(table)) - table.rollouts.first[table.rollout]
        for steps in range(1, self.history + 1):
            # A boundary before the rollout's first row, -1 where a row between is missing.
            before = np.where(table.has_step_before(steps), np.roll(state, steps), NOT_COMPARABLE)
            label = pair_labels(label, np.where(position < steps, BOUNDARY, before))
        codes, actions = code_keys("action", table.column("action"))
        label = pair_labels(label, _code_normal_keys(actions, codes))
        return pair_labels(label, _find_next_state(table, state)) if self.next_state else label


def _code_normal_keys(keys: Sequence[Hashable], codes: IntArray) -> IntArray:
    """Codes of the normalised keys, from 1 up (0 is the boundary); -1 stays."""
    normal, _ = code_by_first_seen([_normalise(key) for key in keys])
    return np.append(normal + 1, NOT_COMPARABLE)[codes]


def _normalise(key: object) -> object:
    return " ".join(key.lower().split()) if isinstance(key, str) else key


def _find_next_state(table: StepTable, state: IntArray) -> IntArray:
    """State after the step (S): from `next_state` if given, else the next row's; a boundary after the last row."""
    follows = np.append(table.has_step_before(1)[1:], False)
    after = np.where(follows, np.roll(state, -1), NOT_COMPARABLE)
    is_last = np.append(table.rollout[1:] != table.rollout[:-1], True)[: len(table)]
    after = np.where(is_last, BOUNDARY, after)
    if "next_state" not in table.extra:
        return after
    # In the same code book as the states.
    known, _ = code_by_first_seen([_normalise(key) for key in table.state_keys])
    book = {_normalise(key): int(code) + 1 for key, code in zip(table.state_keys, known, strict=True)}
    recorded = np.fromiter(
        (
            NOT_COMPARABLE if key is None else book.setdefault(_normalise(key), len(book) + 1)
            for key in table.column("next_state").tolist()
        ),
        dtype=np.int64,
        count=len(table),
    )
    return np.where(recorded >= 0, recorded, after)
