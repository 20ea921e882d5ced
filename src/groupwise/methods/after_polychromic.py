from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.credit import EpisodeReturn, StepTrace, centre_values, check_range, list_rollouts
from groupwise.data.credit import Credit, Derivation
from groupwise.data.segments import BoolArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, PolicyLoss, SequenceMean
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Part, SignalPart
from groupwise.system.errors import ConfigError


@method
def after_polychromic(
    *,
    size: Annotated[int, Field(ge=2)] = 4,
    key: Annotated[str, Field(min_length=1)] = "action",
    variety: Literal["beyond_first", "share"] = "beyond_first",
) -> Algorithm:
    """After the polychromic objective (ours; arXiv:2509.25424 of 2025 has the sets): good and varied sets of rollouts.

    f(S) = mean(R) * (kinds - 1) / (size - 1);   A_i = mean of f over the sets with i - mean of f over all sets

    Choices: the paper has mean(R) times a diversity, and one advantage for a whole set. (kinds - 1) / (size - 1) is
    ours; `variety="share"` is kinds / size, the fraction of distinct ones. Ours too: all sets of a group count, instead
    of sets drawn at states on the way, and there is no KL to the behaviour policy. Rollouts are of one kind if the
    column `key` is equal step by step: `action`, or for single answers the step info `answer`. Returns must be in [0,
    1], with more rollouts than `size` per task. Clip 0.2; each answer counts the same; no KL. The plan `top_up` and
    filters that drop solved tasks are errors, because variety is learned from solved tasks.
    """
    return Algorithm(
        advantage=SetShared(size=size, key=key, variety=variety),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()),
    )


class SetShared(Part, slot="estimator"):
    """Advantage of a rollout = the sets of n rollouts of its task that contain it, compared with all such sets.

        f(S) = mean over S of R * d(S),   d(S) = (kinds in S - 1) / (n - 1), or kinds in S / n with `variety="share"`
        A_i  = mean of f over the sets with i - mean of f over all sets

    Rollouts are of one kind if the column `key` is equal at each of their steps.

    Source: ours, after the polychromic objective (2025, arXiv:2509.25424); all sets of a group count, in closed form.
    Choices: n 4, as in a re-implementation; a set of equal rollouts has value 0; no division by a standard deviation.
    Returns must be in [0, 1]. A wrong rollout of a new kind may gain, by design. With at most n rollouts there is one
    set, and the advantage is exactly 0. The same holds for equal returns if all rollouts are of one kind, or all of
    different kinds.
    """

    needs_solved_groups: ClassVar[bool] = True
    of: SignalPart = EpisodeReturn()
    """The return of a rollout, from 0 to 1."""
    key: Annotated[str, Field(min_length=1)] = "action"
    """The column that decides whether rollouts are of one kind."""
    size: Annotated[int, Field(ge=2)] = 4
    """Rollouts per set."""
    variety: Literal["beyond_first", "share"] = "beyond_first"
    """Whether a set of equal rollouts counts 0, or 1 / size."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.key})

    def check_rollouts(self, rollouts: int) -> None:
        if rollouts <= self.size:
            raise ConfigError(
                f"set_shared: size = {self.size} needs more than {self.size} rollouts per task, but each task gets "
                f"{rollouts}; raise rollout.group_size, or lower size"
            )

    def __call__(self, table: StepTable) -> Credit:
        value_A = table.rollouts.mean(table.ask_once(self.of))
        needed = "but set_shared needs numbers in [0, 1]; rescale them, or hand in `outcome`"
        check_range(table, value_A[table.rollout], "the rollout brought", needed, low=0.0, high=1.0)
        kind_A = find_kinds(table, self.key)
        tasks = Segments.of(table.task[table.rollouts.first])
        shared_A = np.zeros(len(value_A))
        for number in range(len(tasks)):
            own = np.flatnonzero(tasks.label == number)
            if len(own) > self.size:
                shared_A[own] = self._expect(value_A[own].tolist(), [kind_A[place] for place in own])
        credit_A = centre_values(shared_A, tasks)
        values, compared = credit_A[table.rollout], (tasks.size > 1)[table.task]
        return Credit.of(table, StepTrace(values=values, compared=compared, part=self))

    def _measure_variety(self, num_kinds: float) -> float:
        return num_kinds / self.size if self.variety == "share" else (num_kinds - 1) / (self.size - 1)

    def _expect(self, values: Sequence[float], kinds: Sequence[object]) -> list[float]:
        """The mean value of the sets with each rollout, by the chances that a set has no rollout of a kind.

        Sums are rounded once, so equal rollouts get the same bits.
        """
        num, rest = len(values), self.size - 1
        of_kind = Counter(kinds)
        earned = {kind: math.fsum(v for v, k in zip(values, kinds, strict=True) if k == kind) for kind in of_kind}
        missed = [
            {
                kind: math.comb(max(num - fixed - alike, 0), self.size - fixed)
                / math.comb(num - fixed, self.size - fixed)
                for kind, alike in of_kind.items()
            }
            for fixed in (1, 2)
        ]
        num_met = [math.fsum(1 - chance for chance in chances.values()) for chances in missed]
        expected = []
        for value, kind in zip(values, kinds, strict=True):
            alone = value * self._measure_variety(num_met[0] + missed[0][kind])
            others = math.fsum(
                (total - (value if other == kind else 0.0))
                * self._measure_variety(num_met[1] + missed[1][kind] + (missed[1][other] if other != kind else 0.0))
                for other, total in earned.items()
            )
            expected.append((alone + others * rest / (num - 1)) / self.size)
        return expected

    def meets_others(self, table: StepTable, trace: StepTrace) -> BoolArray:
        """All steps that are compared: whole rollouts are (S)."""
        return trace.compared

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        value_A, kind_A = table.rollouts.mean(table.ask_once(self.of)).tolist(), find_kinds(table, self.key)
        places = table.rollouts.first.tolist()
        own = [number for number, place in enumerate(places) if table.task[place] == table.task[step]]
        sets = list(combinations(own, self.size)) if len(own) > self.size else []
        worth, clones = [], 0 if self.variety == "share" else 1
        for chosen in sets:
            varied = (len({kind_A[number] for number in chosen}) - clones) / (self.size - clones)
            worth.append(math.fsum(value_A[number] for number in chosen) / self.size * varied)
        having = [score for score, chosen in zip(worth, sets, strict=True) if table.rollout[step] in chosen]
        value = math.fsum(having) / len(having) - math.fsum(worth) / len(worth) if sets else 0.0
        formula = f"mean worth of {len(having)} sets less that of all {len(worth)} = {value:.6g}"
        return Derivation(value=value, formula=formula, members=list_rollouts(table, value_A, step))


def find_kinds(table: StepTable, key: str) -> list[tuple[int, ...]]:
    """The kind of each rollout (A): the entries of a column, step by step."""
    if not len(table):
        return []
    entries = table.codes(key).tolist()
    bounds = [*table.rollouts.first.tolist(), len(entries)]
    return [tuple(entries[start:end]) for start, end in pairwise(bounds)]
