"""Small tables that conformance/numbers.md works out by hand, as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import groupwise
from groupwise import methods

T1 = (1, 0, 0, 1, 0, 0, 0, 0)
T2 = (1, 1, 1, 1, 1, 1, 0, 0)
T0 = (0,) * 8
TF = (1,) * 8
"""The canonical groups of numbers, Notation."""

STEPS = ("A0", "A1", "A2", "B0", "B1", "C0", "C1", "C2", "C3")
"""The steps of numbers, Routes, in the order of its table."""


def rollouts(*returns: Sequence[float], **extra: Sequence[object]) -> groupwise.StepTable:
    """One task for each sequence of returns, each rollout of one step; extra columns run over all rollouts."""
    return groupwise.StepTable.from_columns(
        task=[task for task, group in enumerate(returns) for _ in group],
        rollout=[rollout for group in returns for rollout, _ in enumerate(group)],
        step=[0 for group in returns for _ in group],
        state=["start" for group in returns for _ in group],
        reward=[float(value) for group in returns for value in group],
        **{name: list(column) for name, column in extra.items()},
    )


def three_rollouts() -> groupwise.StepTable:
    """numbers, Routes: A: s0,s1,s2 reward 10 at the end; B: s0,s1 reward 0; C: s0,s3,s1,s2 reward 10."""
    return groupwise.StepTable.from_columns(
        task=["q"] * 9,
        rollout=[name[0] for name in STEPS],
        step=[int(name[1]) for name in STEPS],
        state=["s0", "s1", "s2", "s0", "s1", "s0", "s3", "s1", "s2"],
        reward=[0, 0, 10, 0, 0, 0, 0, 0, 10],
    )


def credit(table: groupwise.StepTable, method: str, **hyper: object) -> list[float]:
    """The method's credit for each row."""
    algorithm = getattr(methods, method)(**hyper)
    return [float(value) for value in np.asarray(algorithm.advantage(table).values)]


def comparison_flags(table: groupwise.StepTable, method: str, **hyper: object) -> list[bool]:
    """Whether each row had anybody to be compared with."""
    return [bool(flag) for flag in getattr(methods, method)(**hyper).advantage(table).compared]
