"""The kinds of attempts, and how credit that sets of them share came about, set by set. Axes: S steps, A attempts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from groupwise.core.credit import Derivation
from groupwise.core.parts.part import Part
from groupwise.core.segments import BoolArray, FloatArray
from groupwise.core.step_table import StepTable


@dataclass(frozen=True, eq=False, kw_only=True)
class SetTrace:
    """How credit shared by sets came about."""

    values: FloatArray
    """The credit of each step's attempt (S)."""
    compared: BoolArray
    """Whether the task had more than one attempt (S)."""
    value: FloatArray
    """What each attempt brought (A)."""
    kind: Sequence[object]
    """The kind of each attempt (A)."""
    size: int
    """How many attempts make a set."""
    counts_clones: bool
    """Whether a set of clones is worth something."""
    part: Part
    """The estimator."""

    def meets_others(self, table: StepTable) -> BoolArray:
        """Which steps are compared with another rollout: whole attempts are compared, so all that are compared (S)."""
        return self.compared

    def derive(self, table: StepTable, step: int) -> Derivation:
        """Every set of the task's attempts, one by one."""
        places = table.attempts.first.tolist()
        own = [number for number, place in enumerate(places) if table.task[place] == table.task[step]]
        sets = list(combinations(own, self.size)) if len(own) > self.size else []
        worth = [self._score_set(chosen) for chosen in sets]
        having = [score for score, chosen in zip(worth, sets, strict=True) if table.attempt[step] in chosen]
        value = math.fsum(having) / len(having) - math.fsum(worth) / len(worth) if sets else 0.0
        return Derivation(
            value=value,
            formula=f"mean worth of {len(having)} sets less that of all {len(worth)} = {value:.6g}",
            members=tuple((places[number], float(self.value[number])) for number in own),
        )

    def _score_set(self, chosen: Sequence[int]) -> float:
        """What a set of attempts is worth: what it earned, times how varied it is."""
        num_kinds, clones = len({self.kind[number] for number in chosen}), 0 if self.counts_clones else 1
        varied = (num_kinds - clones) / (self.size - clones)
        return math.fsum(self.value[number] for number in chosen) / self.size * varied


def find_kinds(table: StepTable, key: str) -> list[tuple[int, ...]]:
    """The kind of each attempt (A): what a column says, step by step."""
    if not len(table):
        return []
    entries = table.codes(key).tolist()
    bounds = [*table.attempts.first.tolist(), len(entries)]
    return [tuple(entries[start:end]) for start, end in pairwise(bounds)]


def find_chance_to_miss(num: int, size: int, num_of_kind: int) -> float:
    """The chance that `size` attempts, drawn among `num`, hold none of the `num_of_kind` of a kind."""
    return math.comb(max(num - num_of_kind, 0), size) / math.comb(num, size)
