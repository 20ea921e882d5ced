"""An environment that says more of a step than its reward; workers import it by name."""

from __future__ import annotations

from typing import Any

from groupwise import Part, Task
from groupwise.envs import Observation, Outcome, Progress


class Knowing(Part, slot="env"):
    """Two steps; each says how far off its action was, and one says more than a record takes."""

    max_steps: int = 2

    def task_set(self, split: str) -> tuple[Task, ...]:
        return (Task.create(env="knowing", split=split),)

    def open(self, task: Task) -> KnowingEnvironment:
        return KnowingEnvironment(Progress(task, max_steps=2))

    def vocabulary(self) -> tuple[str, ...]:
        return ("here", "near", "far", "nothing", "reward")

    def instruction(self) -> str:
        return ""


class KnowingEnvironment:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._info: dict[str, Any] = {}

    def observe(self) -> Observation:
        return Observation(text="here")

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if action == "reward":
            return self._progress.outcome(self.observe(), info={"reward": 3.0})
        self._info |= {} if action == "nothing" else {"distance": len(action), "path": ("here", {"to": action})}
        return self._progress.outcome(self.observe(), info=self._info)
