"""What a case can demand: values, exact zero, finiteness, or a relation between tables."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.case import Case, Columns, Fault, Options, Request
from conformance.tables import reorder

ANY_EPS = 1e-3
"""Wide enough for every published epsilon of a deviation (1e-9 to 1e-4) at the spreads the cases use."""
SINGLE = 1e-5
"""Wide enough for statistics in single precision."""
NOTICEABLE = 1e-3
"""Credit where there should be none is a fault from here on; below, it is rounding."""
DOUBLE = 1e-9
"""For statistics in double precision."""
SIX_DECIMALS = 1e-5
"""For vectors that conformance/numbers.md gives with six decimals."""
FOUR_DECIMALS = 1e-4
"""For vectors that conformance/numbers.md gives with four decimals."""


def differs(actual: float, expected: float, tolerance: float) -> bool:
    """Whether two numbers lie further apart than the tolerance, relative above 1. NaN differs from everything."""
    return not abs(actual - expected) <= tolerance * max(1.0, abs(expected))


def first_fault(actual: Sequence[float], expected: Sequence[float], tolerance: float) -> Fault | None:
    """The first row where two answers differ."""
    if len(actual) != len(expected):
        return Fault(actual=f"{len(actual)} values", expected=f"{len(expected)} values")
    for row, (value, wanted) in enumerate(zip(actual, expected, strict=True)):
        if differs(value, wanted, tolerance):
            shown, shown_wanted = apart(value, wanted)
            return Fault(actual=f"{shown} in row {row}", expected=shown_wanted)
    return None


def apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to see that they differ, six at least."""
    pairs = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in range(6, 18))
    return next(((a, b) for a, b in pairs if a != b), (repr(one), repr(other)))


class OneTable:
    """An expectation about the case's own table only."""

    def requests(self, case: Case) -> list[Request]:
        return [case.request()]


@dataclass(frozen=True)
class Values(OneTable):
    """The credit of every row, or of the named rows only."""

    expected: Sequence[float]
    tolerance: float
    rows: Sequence[int] | None = field(default=None, kw_only=True)

    def judge(self, case: Case, answers: list[list[float]]) -> Fault | None:
        (actual,) = answers
        kept = actual if self.rows is None else [actual[i] for i in self.rows]
        return first_fault(kept, self.expected, self.tolerance)


@dataclass(frozen=True)
class Zero(OneTable):
    """Credit 0 in every row, or in the named rows; tolerance 0 demands the exact number."""

    tolerance: float = 0.0
    rows: Sequence[int] | None = field(default=None, kw_only=True)

    def judge(self, case: Case, answers: list[list[float]]) -> Fault | None:
        (actual,) = answers
        named = range(len(actual)) if self.rows is None else self.rows
        worst = max(named, key=lambda i: math.inf if math.isnan(actual[i]) else abs(actual[i]))
        if abs(actual[worst]) <= self.tolerance:
            return None
        allowed = f" within {self.tolerance:g}" if self.tolerance else " exactly"
        return Fault(actual=f"{actual[worst]:.6g} in row {worst}", expected=f"0{allowed}")


@dataclass(frozen=True)
class Whitened(OneTable):
    """Over all tokens of the table (column `tokens`) the credit has mean 0 and sample variance 1."""

    tolerance: float

    def judge(self, case: Case, answers: list[list[float]]) -> Fault | None:
        (actual,) = answers
        tokens = case.columns["tokens"]
        count = sum(tokens)
        mean = math.fsum(n * a for n, a in zip(tokens, actual, strict=True)) / count
        squares = math.fsum(n * (a - mean) ** 2 for n, a in zip(tokens, actual, strict=True))
        return first_fault([mean, squares / (count - 1)], [0.0, 1.0], self.tolerance)


@dataclass(frozen=True)
class OrderFree:
    """Rows handed over in any order get the credit they had; tolerance 0 demands it bit for bit."""

    tolerance: float = 0.0
    shuffles: int = 4

    def orders(self, case: Case) -> list[list[int]]:
        forward = list(range(len(case.request())))
        shuffled = [random.Random(seed).sample(forward, len(forward)) for seed in range(self.shuffles)]
        return [forward[::-1], *shuffled]

    def requests(self, case: Case) -> list[Request]:
        moved = (reorder(case.columns, order) for order in self.orders(case))
        return [case.request()] + [
            Request(method=case.method, options=case.options, columns=columns) for columns in moved
        ]

    def judge(self, case: Case, answers: list[list[float]]) -> Fault | None:
        straight, *moved = answers
        for order, actual in zip(self.orders(case), moved, strict=True):
            fault = first_fault(actual, [straight[i] for i in order], self.tolerance)
            if fault is not None:
                return Fault(actual=f"{fault.actual} of shuffled rows", expected=f"{fault.expected} as unshuffled")
        return None


@dataclass(frozen=True, kw_only=True)
class Agrees:
    """The case's table and another one give the same credit on the paired rows.

    `pairs` holds (row here, row there), by default every row with the same row; `factor` times the credit there is
    expected here.
    """

    tolerance: float
    columns: Columns | None = None
    method: str | None = None
    options: Options | None = None
    pairs: Sequence[tuple[int, int]] | None = None
    factor: float = 1.0

    def requests(self, case: Case) -> list[Request]:
        other = Request(
            method=case.method if self.method is None else self.method,
            options=case.options if self.options is None else self.options,
            columns=case.columns if self.columns is None else self.columns,
        )
        return [case.request(), other]

    def judge(self, case: Case, answers: list[list[float]]) -> Fault | None:
        here, there = answers
        pairs = [(i, i) for i in range(len(here))] if self.pairs is None else self.pairs
        actual = [here[i] for i, _ in pairs]
        return first_fault(actual, [self.factor * there[j] for _, j in pairs], self.tolerance)
