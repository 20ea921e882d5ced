"""The step count of a rollout, and the common base of groupwise's environments."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self

from groupwise.data.records import Task
from groupwise.envs.environment import NO_INFO, Observation, Outcome, RolloutEnded
from groupwise.envs.kit.words import NOTHING_HAPPENS


class Progress:
    """The step count and the end of one rollout: truncates it at the limit, and raises after its end."""

    __slots__ = ("_max_steps", "_task", "ended", "observation", "steps")

    def __init__(self, task: Task, *, max_steps: int) -> None:
        self._task, self._max_steps = task, max_steps
        self.steps = 0
        self.ended = False
        self.observation = Observation(text="")
        """The last observation; `outcome` sets it, and the environment sets the first one."""

    def step(self) -> int:
        if self.ended:
            raise RolloutEnded(f"task {self._task.id}: the rollout ended after {self.steps} steps; open the task again")
        self.steps += 1
        return self.steps - 1

    def outcome(
        self,
        observation: Observation,
        *,
        success: bool | None = None,
        reward: float = 0.0,
        accepted: bool = True,
        cut_off: bool = False,
        ended: bool = False,
        note: str = "",
        info: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Finish a step.

        `success` True or False ends the rollout; None = it continues, if the step limit allows. `cut_off`: another
        limit was reached. `ended`: the environment ended, but the rewards of the run decide about success.
        """
        terminated = ended or success is not None
        truncated = not terminated and (cut_off or self.steps >= self._max_steps)
        self.ended, self.observation = terminated or truncated, observation
        return Outcome(
            observation=observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            accepted=accepted,
            success=False if truncated else success,
            note=note,
            info=NO_INFO if info is None else info,
        )

    def fork(self) -> Progress:
        return copy(self)


class SteppedEnvironment:
    """An environment whose `Progress` keeps the observation. A fork is a shallow copy; subclasses copy the rest."""

    def __init__(self, task: Task, max_steps: int) -> None:
        self._progress = Progress(task, max_steps=max_steps)

    def observe(self) -> Observation:
        return self._progress.observation

    def fork(self) -> Self:
        twin = copy(self)
        twin._progress = self._progress.fork()
        return twin


def show_text(text: str) -> Observation:
    return Observation(text=text, state_key=text)


def say_nothing_happens(seen: Observation) -> Observation:
    """The last observation again, after an action without effect."""
    text = seen.text.removeprefix(f"{NOTHING_HAPPENS} ")
    return replace(seen, text=f"{NOTHING_HAPPENS} {text}")
