"""The prior of a task, written from SPO (arXiv:2509.13232): a Beta tracker, one return of 0 or 1 at a time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def beta_tracker(
    updates: Sequence[Sequence[int]],
    *,
    rho: Fraction,
    alpha: Fraction = Fraction(1, 2),
    beta: Fraction = Fraction(1, 2),
) -> list[Fraction]:
    """v = alpha / (alpha + beta) before each update's returns, and after the last; forgetting comes once an update."""
    values = [alpha / (alpha + beta)]
    for returns in updates:
        if returns:
            alpha, beta = rho * alpha, rho * beta
        for r in returns:
            alpha, beta = alpha + r, beta + (1 - r)
        values.append(alpha / (alpha + beta))
    return values
