"""A world of a few steps with categories and a score, and runs that are evaluated on several task sets of it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise import Part, Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.training.config.run_config import RunConfig
from tests.end_to_end import runs

WORDS = ("red", "green", "blue")


class Shelves(Part, slot="env"):
    """Say the colour of a shelf before the steps are over. A rollout that ends with a colour has a grade."""

    writes: ClassVar[frozenset[str]] = frozenset({"grade", "note"})
    max_steps: Annotated[int, Field(ge=1, le=6)] = 2

    def task_set(self, split: str) -> tuple[Task, ...]:
        first = {"train": 0, "validation": 10, "test": 20}[split]
        return tuple(
            Task.create(env="shelves", split=split, seed=seed, tags=("high" if seed % 2 else "low",))
            for seed in range(first, first + 6)
        )

    def open(self, task: Task) -> Any:
        return Shelf(task, self.max_steps)

    def instruction(self) -> str:
        return "Say a colour."

    def vocabulary(self) -> tuple[str, ...]:
        return (*WORDS, *"0123456789", *self.instruction().split())


class Shelf:
    def __init__(self, task: Task, max_steps: int) -> None:
        self._task, self._max_steps, self._steps = task, max_steps, 0

    def observe(self) -> Observation:
        return Observation(text=" ".join(str(self._task.seed)), state_key=self._steps)

    def act(self, action: str) -> Outcome:
        self._steps += 1
        place = WORDS.index(action) if action in WORDS else None
        if place is not None:
            is_right = place == self._task.seed % len(WORDS)
            grade = {"grade": 1.0 if is_right else 0.25 * place}
            return Outcome(
                observation=self.observe(), reward=10.0 * is_right, terminated=True, success=is_right, info=grade
            )
        is_over = self._steps >= self._max_steps
        return Outcome(
            observation=self.observe(), truncated=is_over, success=False if is_over else None, info={"note": "a word"}
        )


TASK_SETS: list[dict[str, Any]] = [
    {"name": "main", "tasks": 4, "rollouts": 3},
    {"name": "long", "steps": 5, "max_tokens": 3, "temperature": 0.7},
    {"name": "sure", "split": "validation", "top_k": 1, "tasks": 2, "rollouts": 2, "temperature": 1.0},
]


def evaluated(updates: int = 1, *, task_sets: Any = TASK_SETS, env: Any = None, **evaluation: Any) -> RunConfig:
    config = runs.config(updates, checkpoint_every=1, env=env or Shelves())
    content = config.config()
    content["rollout"] |= {"group_size": 8, "max_tokens": 1, "workers": 0}
    content["evaluation"] = {
        "split": "test",
        "tasks": 6,
        "temperature": 1.0,
        "score": "grade",
        "every": 1,
        "task_sets": task_sets or [],
        **evaluation,
    }
    return RunConfig(**content)
