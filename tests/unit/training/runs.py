"""Small runs for tests: two words to repeat, a model of two thousand weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise import methods
from groupwise.envs import Identity
from groupwise.learner.config import LearnerConfig
from groupwise.models import TinyModel
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig, RunConfig, TrainingConfig
from groupwise.training.open_run import open_run
from groupwise.training.run import Run


def small_config(*, updates: int = 1, method: str = "dr_grpo", learner: dict[str, Any] | None = None) -> RunConfig:
    return RunConfig(
        algorithm=methods.build(method),
        env=Identity(num_words=4, length=1),
        model=TinyModel(hidden=16, layers=1, heads=2),
        rollout=RolloutConfig(max_tokens=1, group_size=8),
        training=TrainingConfig(
            updates=updates,
            tasks=2,
            checkpoint_every=1,
            learner=LearnerConfig(**{"learning_rate": 1e-2, "token_budget": 256, **(learner or {})}),
        ),
        evaluation=EvaluationConfig(split="train", tasks=2, rollouts=3, temperature=1.0),
    )


def small_run(folder: Path, **settings: Any) -> Run:
    return open_run(small_config(**settings), folder)
