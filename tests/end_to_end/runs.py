"""A run of a second on a tiny model, for the tests that spoil something in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise import methods
from groupwise.envs import Identity
from groupwise.learner.config import LearnerConfig
from groupwise.models import TinyModel
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig, RunConfig, TrainingConfig
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run


def config(
    updates: int, *, method: str = "dr_grpo", seed: int = 0, checkpoint_every: int = 2, **changes: Any
) -> RunConfig:
    """Two tasks of repeating a word; `changes` are further fields of the run."""
    fields: dict[str, Any] = {
        "env": Identity(num_words=4, length=1),
        "rollout": RolloutConfig(max_tokens=1, group_size=64),
        "evaluation": EvaluationConfig(split="train", tasks=2, rollouts=25, temperature=1.0),
    }
    return RunConfig(
        seed=seed,
        algorithm=methods.build(method),
        model=TinyModel(hidden=32, layers=2),
        training=TrainingConfig(
            updates=updates,
            tasks=2,
            learner=LearnerConfig(learning_rate=1e-2, token_budget=256),
            checkpoint_every=checkpoint_every,
        ),
        **fields | changes,
    )


def run_to_end(folder: Path, settings: RunConfig, *, resume: bool = False) -> Run:
    """The run, at its end."""
    run = open_run(settings, folder)
    train(run, resume=resume)
    return run
