"""Groupers: which steps are compared with each other, as one label per step. Axis: S steps."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt

from groupwise.data.credit import spans_rollouts
from groupwise.data.segments import NOT_COMPARABLE, IntArray, Segments, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Part
from groupwise.system.errors import RecordError

Peers = Literal["any", "other_rollouts"]
"""Which members a group needs: any two steps, as published, or steps of two rollouts."""


def require_peers(table: StepTable, label: IntArray, peers: Peers) -> IntArray:
    """The groups that have the required members (S); the steps of all other groups have no group."""
    return label if peers == "any" else np.where(spans_rollouts(table, label), label, NOT_COMPARABLE)


class ByTask(Part, slot="grouper"):
    """Compare all steps of the same task (GRPO's group)."""

    def __call__(self, table: StepTable) -> IntArray:
        return table.task


class ByRollout(Part, slot="grouper"):
    """Compare the steps of one rollout with each other."""

    def __call__(self, table: StepTable) -> IntArray:
        return table.rollout


class ByState(Part, slot="grouper"):
    """Compare steps of a task that start from the same state (GiGPO's anchor groups).

    With `similarity`, states of a task are clustered, in the table's order. A state joins the first cluster whose
    representative r has ratio(state, r) >= similarity, with difflib's ratio. Else it opens a new cluster.

    Source: Feng et al. 2025, arXiv:2505.10978, section 4.2; the released code for the clustering.

    Choices: the order is task, rollout, index, so shuffled rows give the same clusters. Texts that differ in a number
    are different states ("mug 1" and "mug 2" have ratio 0.975), unless `same_numbers` is off as in the released code.
    If a rollout returns to a state, its visits are compared with each other, even if no other rollout visits the state.
    `peers = "other_rollouts"` removes such groups. It changes nothing in the remaining groups: a step is still compared
    with the other steps of its own rollout too, as published.
    """

    similarity: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Smallest ratio at which two texts count as one state; None = equality."""
    same_numbers: bool = True
    """Whether similar texts must contain the same numbers in the same order."""
    peers: Peers = "any"
    """Which members a group needs: `any` two steps, or `other_rollouts` too; else its steps are not compared."""

    def __call__(self, table: StepTable) -> IntArray:
        state = table.state if self.similarity is None else self._cluster_states(table)
        return require_peers(table, pair_labels(table.task, state), self.peers)

    def _cluster_states(self, table: StepTable) -> IntArray:
        """The state that opened the cluster of each step's state (S)."""
        visits = Segments.of(pair_labels(table.task, table.state))
        first_visits = np.sort(visits.first)  # each distinct state of each task, at its first step in table order
        opened: dict[int, list[int]] = {}
        representative = np.full(len(visits), NOT_COMPARABLE, dtype=np.int64)
        for step in first_visits.tolist():
            state = int(table.state[step])
            clusters = opened.setdefault(int(table.task[step]), [])
            near = next((other for other in clusters if self._are_similar(table, state, other)), None)
            if near is None:
                clusters.append(state)
            representative[visits.label[step]] = state if near is None else near
        return np.append(representative, NOT_COMPARABLE)[visits.label]

    def _are_similar(self, table: StepTable, state: int, other: int) -> bool:
        text, representative = _read_text(table, state), _read_text(table, other)
        if self.same_numbers and re.findall(r"\d+", text) != re.findall(r"\d+", representative):
            return False
        matcher = SequenceMatcher(None, text, representative)
        threshold = self.similarity or 1.0
        # Cheap upper bounds first: most pairs of states are far apart.
        return (
            matcher.real_quick_ratio() >= threshold
            and matcher.quick_ratio() >= threshold
            and matcher.ratio() >= threshold
        )


def _read_text(table: StepTable, state: int) -> str:
    key = table.state_keys[state]
    if not isinstance(key, str):
        raise RecordError(f"state {key!r} is not text; grouping by similarity needs text states")
    return key


class ByHistory(Part, slot="grouper"):
    """Compare steps of a task that share their state and the `depth` states before it (HGPO's level groups).

        C_k(s_t) = (s_{t-k}, ..., s_{t-1}, s_t),   defined only if t >= k

    Source: HGPO, arXiv:2602.22817, the k-step context operator. Depth 0 is `ByState`.

    Choices: actions are not part of the key. A step has no group at depth k if one of its k predecessors is not in the
    table (the rollout began later, or a row is missing), or if one of the k+1 states is None. A group may hold steps of
    a single rollout, as published; `peers = "other_rollouts"` removes such groups at this depth. It changes nothing in
    the remaining groups, as in `ByState`.
    """

    depth: NonNegativeInt
    """Number of earlier states that must be equal."""
    peers: Peers = "any"
    """Which members a group needs: `any` two steps, or `other_rollouts` too; else its steps are not compared."""

    def __call__(self, table: StepTable) -> IntArray:
        if self.peers != "any":
            return require_peers(table, table.ask_once(ByHistory(depth=self.depth)), self.peers)
        if self.depth == 0:
            return pair_labels(table.task, table.state)
        shallower = table.ask_once(ByHistory(depth=self.depth - 1))
        earlier = np.where(table.has_step_before(self.depth), np.roll(table.state, self.depth), NOT_COMPARABLE)
        return pair_labels(shallower, earlier)


class ByBranch(Part, slot="grouper"):
    """Compare steps of a task that were sampled from the same branch point, given by the column `branch`.

    Tree rollouts (SPO, PORTool, ARPO) continue several rollouts from one place, and the first steps after that place
    are compared. A step whose branch is None has no branch point and no group.
    """

    def __call__(self, table: StepTable) -> IntArray:
        return pair_labels(table.task, table.codes("branch"))
