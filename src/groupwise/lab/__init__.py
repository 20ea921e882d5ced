"""The lab compares the advantages of each method with the true advantages."""

from __future__ import annotations

from groupwise.lab.enumerated import EnumeratedWorld, View, enumerate_task, remember
from groupwise.lab.tabular import (
    ExactValues,
    SampledRollouts,
    TabularPolicy,
    read_window,
    sample_rollouts,
    solve_exactly,
)

__all__ = [
    "EnumeratedWorld",
    "ExactValues",
    "SampledRollouts",
    "TabularPolicy",
    "View",
    "enumerate_task",
    "read_window",
    "remember",
    "sample_rollouts",
    "solve_exactly",
]
