"""Subjects that are wrong on purpose, each in one way that released code has been wrong.

All but the first distort the question and pass it on to our methods, so that they differ from a right subject in the
planted mistake only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.case import Columns, Options
from conformance.subjects.ours import Ours
from conformance.subjects.rollouts import episode_returns, rows_by_rollout

Question = tuple[Options, Columns]


class SinglePrecision:
    """GRPO with float32 statistics and std + 1e-6, summed one after the other."""

    title, versions = "single precision", {}

    def supports(self, method: str, options: Options, columns: Columns) -> str | None:
        return None if method == "grpo" and not options else "not built"

    def advantage(self, method: str, options: Options, columns: Columns) -> list[float]:
        groups: dict[Any, list[np.float32]] = defaultdict(list)
        returns = {key: np.float32(value) for key, value in episode_returns(columns).items()}
        for (task, _), value in returns.items():
            groups[task].append(value)
        level = {task: sum(group, np.float32(0)) / np.float32(len(group)) for task, group in groups.items()}
        credit = [0.0] * len(columns["reward"])
        for (task, rollout), members in rows_by_rollout(columns).items():
            group = groups[task]
            squares = sum(((value - level[task]) ** 2 for value in group), np.float32(0))
            deviation = np.sqrt(squares / np.float32(len(group) - 1))
            for row in members:
                credit[row] = float((returns[task, rollout] - level[task]) / (deviation + np.float32(1e-6)))
        return credit


@dataclass
class Distorted:
    """Our methods, asked a distorted question."""

    distort: Callable[[Options, Columns], Question]
    methods: tuple[str, ...]
    title: str = "distorted"
    versions: dict[str, str] = field(default_factory=dict)

    def supports(self, method: str, options: Options, columns: Columns) -> str | None:
        return None if method in self.methods else "not built"

    def advantage(self, method: str, options: Options, columns: Columns) -> list[float]:
        distorted_options, distorted_columns = self.distort(options, columns)
        return Ours().advantage(method, distorted_options, distorted_columns)


def time_is_row_order(options: Options, columns: Columns) -> Question:
    counts: dict[Any, int] = defaultdict(int)
    index = []
    for key in zip(columns["task"], columns["rollout"], strict=True):
        index.append(counts[key])
        counts[key] += 1
    return options, {**columns, "step": index}


def lone_keeps_its_reward(options: Options, columns: Columns) -> Question:
    return {**options, "alone": "raw"}, columns


def rows_are_rollouts(options: Options, columns: Columns) -> Question:
    returns = episode_returns(columns)
    outcome = [returns[key] for key in zip(columns["task"], columns["rollout"], strict=True)]
    return options, {**columns, "rollout": list(range(len(outcome))), "outcome": outcome}


def states_have_no_task(options: Options, columns: Columns) -> Question:
    rollout = [f"{task}/{rollout}" for task, rollout in zip(columns["task"], columns["rollout"], strict=True)]
    return options, {**columns, "task": ["all"] * len(rollout), "rollout": rollout}


def deviation_of_a_population(options: Options, columns: Columns) -> Question:
    return {**options, "ddof": 0}, columns


def penalty_before_discounting(options: Options, columns: Columns) -> Question:
    penalty = options.get("invalid_penalty", 0.1)
    well_formed = columns.get("well_formed", [True] * len(columns["reward"]))
    reward = [r - penalty * (not ok) for r, ok in zip(columns["reward"], well_formed, strict=True)]
    return options, {**{key: column for key, column in columns.items() if key != "well_formed"}, "reward": reward}


def none_is_a_state(options: Options, columns: Columns) -> Question:
    missing = columns.get("state", [None] * len(columns["reward"]))
    return options, {**columns, "state": ["None" if state is None else state for state in missing]}


def segments_are_steps(options: Options, columns: Columns) -> Question:
    plain = {key: column for key, column in columns.items() if key != "segment"}
    index = list(columns["step"])
    for members in rows_by_rollout(columns).values():
        for place, row in enumerate(members):
            index[row] = place
    return options, {**plain, "step": index}
