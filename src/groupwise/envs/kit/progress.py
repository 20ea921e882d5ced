"""How far an attempt has come: counts its steps, cuts it off at the limit, and refuses to go on after its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.data.records import Task
from groupwise.envs.environment import NO_FACTS, AttemptEnded, Observation, Outcome


class Progress:
    """The step count and the end of one attempt."""

    __slots__ = ("_ended", "_max_steps", "_task", "steps")

    def __init__(self, task: Task, *, max_steps: int) -> None:
        self._task = task
        self._max_steps = max_steps
        self._ended = False
        self.steps = 0
        """Steps taken so far."""

    @property
    def ended(self) -> bool:
        """Whether the attempt is over."""
        return self._ended

    def step(self) -> int:
        """Begin a step; return its index."""
        if self._ended:
            raise AttemptEnded(
                f"task {self._task.id}: the attempt ended after {self.steps} steps; open the task again for another"
            )
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
        facts: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Finish a step.

        Args:
            observation: What is shown now.
            success: How the world ended by itself; None = it goes on, if the limit allows.
            reward: Reward of the step.
            accepted: Whether the action was understood and carried out.
            cut_off: Whether a limit other than the number of steps was reached.
            ended: Whether the world ended by itself and leaves it to the run's rewards to say how.
            note: What the record should say of it.
            facts: What else is known of the step, by name.
        """
        terminated = ended or success is not None
        truncated = not terminated and (cut_off or self.steps >= self._max_steps)
        self._ended = terminated or truncated
        return Outcome(
            observation=observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            accepted=accepted,
            success=False if truncated else success,
            note=note,
            facts=NO_FACTS if facts is None else facts,
        )

    def fork(self) -> Progress:
        """A copy that counts on its own."""
        twin = Progress(self._task, max_steps=self._max_steps)
        twin.steps, twin._ended = self.steps, self._ended
        return twin
