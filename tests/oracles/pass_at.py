"""pass@k by counting: look at every choice of k rollouts and see whether one of them succeeded."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations


def pass_at(successes: Sequence[bool], k: int) -> Fraction:
    """Share of the choices of k rollouts that hold a success."""
    choices = list(combinations(successes, k))
    return Fraction(sum(any(choice) for choice in choices), len(choices))


def mean_pass_at(tasks: Sequence[Sequence[bool]], k: int) -> Fraction:
    """Its mean over tasks; every task counts the same."""
    return sum((pass_at(task, k) for task in tasks), Fraction(0)) / len(tasks)
