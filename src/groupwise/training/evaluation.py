"""Evaluation on a fixed panel: success with a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.core.records import Trajectory
from groupwise.core.seeds import seed_of
from groupwise.envs.panel import panel_hash
from groupwise.rollout.collect import Attempt, Sampling, collect
from groupwise.training.run import Run


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How a policy did on a panel."""

    panel: str
    """Digest of the panel's tasks."""
    attempts: int
    """Attempts made."""
    success: float
    """Share that succeeded."""
    interval: tuple[float, float]
    """95 % interval of that share (Wilson)."""
    trajectories: Sequence[Trajectory]
    """What was played."""


def evaluate(run: Run, *, seed: int = 0) -> Evaluation:
    """Play the evaluation panel with the engine's weights; nothing learns from it."""
    config = run.config.evaluation
    tasks = run.config.env.panel(config.split)[: config.tasks]
    attempts = [
        Attempt(task=task, number=number, seed=seed_of(run.config.seed, "evaluation", seed, task.id, number))
        for task in tasks
        for number in range(config.attempts)
    ]
    sampling = Sampling(max_tokens=run.config.rollout.max_tokens, temperature=config.temperature)
    played = collect(
        attempts,
        host=run.host,
        engine=run.engine,
        prompter=run.prompter,
        rule=run.config.rollout.action_rule,
        sampling=sampling,
    )
    wins = int(sum(trajectory.scores.get("success", 0.0) for trajectory in played))
    return Evaluation(
        panel=panel_hash(tasks),
        attempts=len(played),
        success=wins / len(played),
        interval=wilson(wins, len(played)),
        trajectories=played,
    )


def wilson(wins: int, tries: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson's interval for a share: it stays within [0, 1] and is right at the ends."""
    share, spread = wins / tries, z * z / tries
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / tries + spread / (4 * tries)) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)
