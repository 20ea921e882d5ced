"""Steps of a task that stand in the same state, exactly or nearly."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.segments import NOT_COMPARABLE, IntArray, Segments, pair_labels
from groupwise.core.step_table import StepTable
from groupwise.groups.peers import Peers, require_peers


class ByState(Part, slot="grouper"):
    """Compare steps of a task that were taken from the same state (GiGPO's anchor groups).

    With `similarity`, states of a task are clustered: in the table's order, a state joins the first cluster whose
    representative r has ratio(state, r) >= similarity, with difflib's ratio, else it opens a cluster of its own.

    Source: Feng et al. 2025, arXiv:2505.10978, section 4.2; the released code for the clustering.

    Choices: the walk is in the order of task, attempt and index, so shuffled rows give the same clusters. Texts that
    differ in a number are different states ("mug 1" and "mug 2" have ratio 0.975) unless `same_numbers` is off, which
    is what the released code does. A rollout that comes back to a state is compared with itself there, also if no
    other rollout visits it; `peers = "other_rollouts"` takes such groups apart. It takes nothing out of the groups that
    remain: there a step is still compared with the other steps of its own rollout too, as published.
    """

    similarity: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Smallest ratio at which two texts count as one state; None = equality."""
    same_numbers: bool = True
    """Whether similar texts must also contain the same numbers in the same order."""
    peers: Peers = "any"
    """Who must be in a group: `any` two steps, or `other_rollouts` too; else its steps are compared with none."""

    def __call__(self, table: StepTable) -> IntArray:
        state = table.state if self.similarity is None else self._cluster_states(table)
        return require_peers(table, pair_labels(table.task, state), self.peers)

    def _cluster_states(self, table: StepTable) -> IntArray:
        """Representative of each step's state (S): the state that opened its cluster."""
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
        if self.same_numbers and _find_numbers(text) != _find_numbers(representative):
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


def _find_numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)
