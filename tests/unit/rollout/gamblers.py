"""An environment that draws from the process-wide generators, as many packages do; workers import it by name."""

from __future__ import annotations

import random
from contextlib import nullcontext

import numpy as np

from groupwise import Part, Task
from groupwise.envs import Observation, Outcome, Progress
from groupwise.envs.kit.draws import PrivateRandom


class Gambler(Part, slot="env"):
    """Throws dice; with `private` false, those of the whole process."""

    private: bool = True
    max_steps: int = 6

    def task_set(self, split: str) -> tuple[Task, ...]:
        first = {"train": 0, "validation": 1000, "test": 2000}[split]
        return tuple(Task.create(env="gambler", split=split, seed=first + n) for n in range(1000))

    def open(self, task: Task) -> GamblerEnvironment:
        return GamblerEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        return (*map(str, range(1000)), "throw", "pass")

    def instruction(self) -> str:
        return "Throw."


class GamblerEnvironment:
    def __init__(self, task: Task, part: Gambler) -> None:
        self._progress = Progress(task, max_steps=part.max_steps)
        self._random = PrivateRandom(task.seed) if part.private else None
        if not part.private:
            random.seed(task.seed)
            np.random.seed(task.seed)
        self._shown = self._throw()

    def observe(self) -> Observation:
        return Observation(text=self._shown, state_key=self._shown, admissible=("throw", "pass"))

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if action == "throw":
            self._shown = self._throw()
        return self._progress.outcome(self.observe(), accepted=action in ("throw", "pass"))

    def _throw(self) -> str:
        with self._random.in_place() if self._random else nullcontext():
            return f"{random.randrange(1000)} {np.random.randint(1000)}"
