"""What a task asks for, in the environment's own words."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.core.records import Task
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.kit.panel import SPLITS
from groupwise.envs.mixture import find_environment
from groupwise.envs.part_queries import ask_instruction
from groupwise.rollout.hosts.host import Fault, call_guarded


@dataclass(frozen=True, kw_only=True)
class TaskGoal:
    """What is known of a task beyond its id."""

    text: str
    """What the task asks for; empty where the observation says it all."""
    tags: tuple[str, ...]
    """Its labels, such as its family."""
    instruction: str = ""
    """The line of its environment; empty where that is not known."""


class GoalLookup:
    """Looks tasks up in an environment's panels; an environment that is not there, or fails, knows nothing."""

    def __init__(self, env: EnvironmentPart | None) -> None:
        self._env = env
        self._tasks: dict[str, Task] | None = None

    def find(self, task_id: str) -> TaskGoal:
        """What a task asks for."""
        goal = call_guarded(lambda: self._look_up(task_id))
        return TaskGoal(text="", tags=()) if isinstance(goal, Fault) else goal

    def _look_up(self, task_id: str) -> TaskGoal:
        if self._env is None:
            return TaskGoal(text="", tags=())
        if self._tasks is None:
            self._tasks = {task.id: task for split in SPLITS for task in self._env.panel(split)}
        task = self._tasks.get(task_id)
        if task is None:
            return TaskGoal(text="", tags=())
        instruction = ask_instruction(find_environment(self._env, task))
        return TaskGoal(text=self._env.open(task).observe().goal, tags=task.tags, instruction=instruction)
