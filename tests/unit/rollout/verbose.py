"""An environment that says as much as it is asked to; workers import it by name."""

from __future__ import annotations

from groupwise import Part, Task
from groupwise.envs import Observation, Outcome


class Verbose(Part, slot="env"):
    """An action is a number of characters, which are then shown; a task may show some at once."""

    max_steps: int = 5

    def task_set(self, split: str) -> tuple[Task, ...]:
        return (task(0),)

    def open(self, task: Task) -> VerboseEnvironment:
        return VerboseEnvironment(int(task.payload["shown"]))

    def vocabulary(self) -> tuple[str, ...]:
        return ("x",)

    def instruction(self) -> str:
        return "Say a number."


class VerboseEnvironment:
    def __init__(self, shown: int) -> None:
        self._shown = shown

    def observe(self) -> Observation:
        return Observation(text="x" * self._shown, goal="listen", admissible=("1", "2"))

    def act(self, action: str) -> Outcome:
        self._shown = int(action)
        return Outcome(observation=self.observe())


def task(shown: int) -> Task:
    return Task.create(env="verbose", split="train", payload={"shown": shown})
