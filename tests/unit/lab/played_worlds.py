"""True values found the long way: every trajectory of the real environment, one by one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from groupwise.data.records import Task
from groupwise.envs import Aliased, Gridworld
from groupwise.lab import TabularPolicy, View

Situation = tuple[int, Hashable, tuple[tuple[str, str], ...]]
"""A step's number, its state key, and what was seen and done before it."""

TINY: dict[str, tuple[Any, Task]] = {
    "lake": (Gridworld(size=3, num_holes=1, max_steps=5), Gridworld(size=3, num_holes=1).task_set("test")[0]),
    "slippery lake": (
        Gridworld(size=3, num_holes=1, slip=0.4, max_steps=5),
        Task.create(env="gridworld", seed=5, payload={"rows": ["S..", ".H.", "..G"], "slip": 0.4}),
    ),
    **{
        name: (part, part.task_set("train")[3])
        for name, part in {
            "nothing hidden": Aliased(hidden_bits=0, num_doors=3, num_colours=3, max_steps=5),
            "a bit": Aliased(hidden_bits=1, passages=0, num_doors=2, num_colours=2, max_steps=6),
            "two bits, one reply": Aliased(
                hidden_bits=2, passages=1, num_doors=2, num_colours=2, max_steps=7, one_reply=True
            ),
            "noise": Aliased(hidden_bits=1, passages=1, num_doors=2, num_colours=2, max_steps=7, noise=0.3),
            "three bits, goal told": Aliased(
                hidden_bits=3, passages=0, num_doors=3, num_colours=2, max_steps=8, goal_in_text=True
            ),
        }.items()
    },
}
"""Worlds with few enough trajectories to play them all, by name."""


def play_all(part: Any, task: Task, policy: TabularPolicy, gamma: float) -> dict[Situation, tuple[float, list[float]]]:
    """V and Q of every situation that can be reached, by playing every trajectory from it."""
    values: dict[Situation, tuple[float, list[float]]] = {}

    def play(environment: Any, step: int, past: tuple[tuple[str, str], ...]) -> float:
        seen = environment.observe()
        row = policy.rows[View(seen.text, past[len(past) - policy.window :] if policy.window else ())]
        worth = []
        for action in policy.actions:
            twin = environment.fork()
            outcome = twin.act(action)
            later = 0.0 if outcome.ended else play(twin, step + 1, (*past, (seen.text, action)))
            worth.append(outcome.reward + gamma * later)
        value = sum(float(share) * after for share, after in zip(row, worth, strict=True))
        values[step, seen.state_key, past] = (value, worth)
        return value

    play(part.open(task), 0, ())
    return values


def play_once(part: Any, task: Task, policy: TabularPolicy, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    """One rollout at the real environment, step by step."""
    environment = part.open(task)
    past: list[tuple[str, str]] = []
    is_over = False
    while not is_over:
        seen = environment.observe()
        row = policy.rows[View(seen.text, tuple(past[-policy.window :]) if policy.window else ())]
        action = policy.actions[int(generator.choice(len(row), p=row))]
        outcome = environment.act(action)
        yield {"key": seen.state_key, "text": seen.text, "action": action, "reward": outcome.reward}
        past.append((seen.text, action))
        is_over = outcome.ended
