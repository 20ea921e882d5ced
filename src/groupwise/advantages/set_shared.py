"""Credit that a set of attempts shares: what it earned, times how varied it is. Axes: S steps, A attempts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.advantages.baselines import centre_values
from groupwise.advantages.set_trace import SetTrace, find_chance_to_miss, find_kinds
from groupwise.advantages.signals import EpisodeReturn
from groupwise.core.credit import Credit
from groupwise.core.errors import ConfigError, RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import SignalPart
from groupwise.core.segments import FloatArray, Segments
from groupwise.core.step_table import StepTable


class SetShared(Part, slot="estimator"):
    """Credit an attempt with the sets of n attempts at its task that it is in, against all such sets.

        f(S) = mean over S of R * d(S),   d(S) = (kinds in S - 1) / (n - 1), or kinds in S / n with `variety="share"`
        A_i  = mean of f over the sets with i - mean of f over all sets

    Attempts are of one kind where the column `key` says the same at each of their steps.

    Source: ours, after the polychromic objective (2025, arXiv:2509.25424), which has a mean times a diversity and the
    shared advantage; its sets are drawn at states on the way (vines), here all sets of a group count, in closed form.
    Choices: n 4, as in a re-implementation; a set of clones is worth nothing; no division by a deviation. Returns have
    to lie in [0, 1]. A wrong attempt of a new kind may gain: that is meant. With no more than n attempts there is one
    set, and credit is exactly 0; so is that of attempts that earned alike and are all of one kind, or each of another.
    """

    needs_solved_groups: ClassVar[bool] = True
    """It says something about groups that are solved by every attempt."""
    of: SignalPart = EpisodeReturn()
    """What an attempt brought, from 0 to 1."""
    key: Annotated[str, Field(min_length=1)] = "action"
    """The column that tells attempts apart."""
    size: Annotated[int, Field(ge=2)] = 4
    """How many attempts make a set."""
    variety: Literal["beyond_first", "share"] = "beyond_first"
    """Whether a set of clones is worth nothing, or what one of its kinds is a share of."""

    @property
    def reads(self) -> frozenset[str]:
        """The column that tells attempts apart."""
        return frozenset({self.key})

    def check_attempts(self, attempts: int) -> None:
        """Refuse groups that are one set."""
        if attempts <= self.size:
            raise ConfigError(
                f"set_shared: of {attempts} attempts at a task there is one set of {self.size} and nothing to hold it "
                "against; give rollout.plan.attempts more, or a smaller size"
            )

    def __call__(self, table: StepTable) -> Credit:
        value_A = table.attempts.mean(table.ask_once(self.of))
        self._check_range(table, value_A)
        kind_A = find_kinds(table, self.key)
        tasks = Segments.of(table.task[table.attempts.first])
        shared_A = np.zeros(len(value_A))
        for number in range(len(tasks)):
            own = np.flatnonzero(tasks.label == number)
            if len(own) > self.size:
                shared_A[own] = self._expect(value_A[own].tolist(), [kind_A[place] for place in own])
        credit_A = centre_values(shared_A, tasks)
        trace = SetTrace(
            values=credit_A[table.attempt],
            compared=(tasks.size > 1)[table.task],
            value=value_A,
            kind=kind_A,
            size=self.size,
            counts_clones=self.variety == "share",
            part=self,
        )
        return Credit.of(table, trace)

    def _measure_variety(self, num_kinds: float) -> float:
        return num_kinds / self.size if self.variety == "share" else (num_kinds - 1) / (self.size - 1)

    def _expect(self, values: Sequence[float], kinds: Sequence[object]) -> list[float]:
        """The mean worth of the sets with each attempt, by the chances that a set has no attempt of a kind.

        Sums are rounded once, so that attempts that cannot be told apart get the same bits.
        """
        num, rest = len(values), self.size - 1
        of_kind = Counter(kinds)
        earned = {kind: math.fsum(v for v, k in zip(values, kinds, strict=True) if k == kind) for kind in of_kind}
        missed = [
            {kind: find_chance_to_miss(num - fixed, self.size - fixed, of_kind[kind]) for kind in of_kind}
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

    def _check_range(self, table: StepTable, value_A: FloatArray) -> None:
        outside = np.flatnonzero((value_A < -1e-9) | (value_A > 1 + 1e-9))  # a sum may miss 1 by its last digit
        if len(outside):
            raise RecordError(
                f"{table.describe_step(int(table.attempts.first[outside[0]]))}: the attempt brought "
                f"{value_A[outside[0]]:g}, but set_shared needs numbers in [0, 1]; rescale them, or hand in `outcome`"
            )
