"""Pairings: which attempts of a group a loss holds against each other. Axes: S steps, A attempts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import numpy as np

from groupwise.core.errors import ConfigError
from groupwise.core.pairs import Pair, compare_returns, differ
from groupwise.core.parts.part import Part, name_of
from groupwise.core.step_table import StepTable


class BestAgainstWorst(Part, slot="pairing"):
    """One pair a task: the attempt of the highest return against that of the lowest.

    Source: the usual way from groups to preference pairs (SimPO, Meng et al. 2024, arXiv:2405.14734, takes the best and
    the worst of five answers). Choices: of equal attempts the first counts; a task whose attempts all did equally well
    has no pair; attempts of which no step may train are left out before anybody is chosen.
    """

    def check_attempts(self, attempts: int) -> None:
        """Refuse a run in which no task has two attempts."""
        refuse_lone_attempts(self, attempts)

    def __call__(self, table: StepTable) -> list[Pair]:
        pairs = []
        for returns in _list_returns_by_task(table):
            best, worst = max(returns, key=returns.__getitem__), min(returns, key=returns.__getitem__)
            if differ(returns[best], returns[worst]):
                pairs.append(Pair(best, worst, gap=returns[best] - returns[worst]))
        return pairs

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        """The two returns."""
        return f"best and worst attempt at the task: {compare_returns(table, pair)}"


class AllPairs(Part, slot="pairing"):
    """Every two attempts at a task whose returns differ, the better one against the worse one.

    Source: P3O (Wu et al. 2023, arXiv:2310.00212) has two answers a prompt; all pairs of a larger group are derived
    from that, not the source's. Choice: each task counts the same by default, however many pairs it has, so that a
    pair's weight is 1 / (pairs of its task).
    """

    counts: Literal["task", "pair"] = "task"
    """What counts the same: every task that has a pair, or every pair."""

    def check_attempts(self, attempts: int) -> None:
        """Refuse a run in which no task has two attempts."""
        refuse_lone_attempts(self, attempts)

    def __call__(self, table: StepTable) -> list[Pair]:
        pairs = []
        for returns in _list_returns_by_task(table):
            differing = [(a, b) for a, b in combinations(returns, 2) if differ(returns[a], returns[b])]
            weight = 1.0 if self.counts == "pair" else 1 / max(len(differing), 1)
            for a, b in differing:
                winner, loser = (a, b) if returns[a] > returns[b] else (b, a)
                pairs.append(Pair(winner, loser, weight, returns[winner] - returns[loser]))
        return pairs

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        """The two returns."""
        return f"two attempts at the task: {compare_returns(table, pair)}"


def refuse_lone_attempts(pairing: Part, attempts: int) -> None:
    """Refuse a run in which no group can have two outcomes: there would never be a pair."""
    if attempts < 2:
        raise ConfigError(
            f"algorithm.pairing: {name_of(pairing)} holds attempts at one task against each other, and each task gets "
            f"{attempts}; give rollout.plan.attempts, and at_most where it is used, at least 2"
        )


def _list_returns_by_task(table: StepTable) -> Iterator[dict[int, float]]:
    """The return of each attempt of which a step may train, by its number, task by task."""
    trains_A = table.attempts.sum(table.trains.astype(np.float64)) > 0
    first_A = table.attempts.first
    task_A, return_A = table.task[first_A].tolist(), table.episode_return[first_A].tolist()
    tasks: dict[int, dict[int, float]] = {}
    for attempt in np.flatnonzero(trains_A).tolist():
        tasks.setdefault(task_A[attempt], {})[attempt] = return_A[attempt]
    yield from tasks.values()
