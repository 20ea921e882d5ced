"""Small runs in which groups without spread are rescued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.parts.algorithm import Algorithm
from groupwise.rollout import Flat
from groupwise.rollout.plans import RolloutPlan
from groupwise.rollout.tasks import Shuffled
from groupwise.training.config.run_config import WarmStartConfig
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.unit.training.runs import small_config


def open_small_run(
    folder: Path,
    algorithm: Algorithm,
    *,
    updates: int = 4,
    first: int = 2,
    plan: RolloutPlan | None = None,
    group_size: int = 3,
    rate: float = 1e-4,
    model: tuple[Any, Any] | None = None,
) -> Run:
    """A run over few tasks with few rollouts by a policy that says one word or another: groups are often even."""
    config = small_config(updates=updates, learner={"learning_rate": rate})
    curriculum = {"curriculum": Shuffled(first=first)}
    rollout = {"plan": plan or Flat(), "group_size": group_size}
    changes: dict[str, Any] = {
        "algorithm": algorithm,
        "training": config.training.model_copy(update=curriculum),
        "rollout": config.rollout.model_copy(update=rollout),
        "warm_start": WarmStartConfig(tasks=4, epochs=40, expert_noise=0.5, learning_rate=1e-2),
    }
    return open_run(config.model_copy(update=changes), folder, model_and_tokenizer=model)


def train_small_run(folder: Path, algorithm: Algorithm, **settings: Any) -> Run:
    run = open_small_run(folder, algorithm, **settings)
    train(run)
    return run
