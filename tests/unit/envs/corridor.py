"""A correct little environment: walk left or right until the goal."""

from __future__ import annotations

from typing import ClassVar

from groupwise import Part, Task
from groupwise.envs import Environment, Observation, Outcome, Progress


class Corridor:
    """Walk left or right until the goal."""

    def __init__(self, task: Task, max_steps: int) -> None:
        self.at, self.goal = int(task.payload["start"]), int(task.payload["goal"])
        self.progress = Progress(task, max_steps=max_steps)

    def observe(self) -> Observation:
        return Observation(text=self.text(), state_key=self.key(), admissible=self.list_actions())

    def act(self, action: str) -> Outcome:
        self.progress.step()
        if action not in ("left", "right"):
            return self.progress.outcome(self.observe(), accepted=False)
        self.at += self.stride() if action == "right" else -1
        if self.at == self.goal:
            return self.progress.outcome(self.observe(), success=True, reward=self.reward())
        return self.progress.outcome(self.observe())

    def text(self) -> str:
        return f"at {self.at} of {self.goal}"

    def key(self) -> object:
        return self.at

    def list_actions(self) -> tuple[str, ...]:
        return ("left", "right")

    def stride(self) -> int:
        return 1

    def reward(self) -> float:
        return 1.0


class Branching(Corridor):
    """A corridor that forks and has an expert."""

    def fork(self) -> Environment:
        twin = type(self).__new__(type(self))
        twin.at, twin.goal, twin.progress = self.at, self.goal, self.progress.fork()
        return twin

    def expert(self) -> str | None:
        return "right" if self.at < self.goal else "left"


class CorridorPart(Part, slot="env"):
    max_steps: int = 12

    world: ClassVar[type[Corridor]] = Branching

    def task_set(self, split: str) -> tuple[Task, ...]:
        goals = {"train": range(3, 9), "validation": range(9, 10), "test": range(10, 12)}[split]
        return tuple(
            Task.create(env="corridor", split=split, payload={"start": start, "goal": goal})
            for goal in goals
            for start in (0, 1)
        )

    def open(self, task: Task) -> Environment:
        return self.world(task, self.max_steps)

    def vocabulary(self) -> tuple[str, ...]:
        return ("-", "at", "go", "goal", "left", "of", "right", "the", "to", *(str(number) for number in range(30)))

    def instruction(self) -> str:
        return "Go to the goal"
