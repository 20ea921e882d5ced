"""Updates as a part that remembers observes them, of rollouts with the rewards that a test gives."""

from __future__ import annotations

from groupwise import Step, Task, Trajectory
from groupwise.parts.stateful import ObservedUpdate


def rollout(task: str, number: int, *rewards: float, shaped: float = 0.0) -> Trajectory:
    steps = tuple(Step(index=i, reward=reward, shaped=shaped) for i, reward in enumerate(rewards))
    return Trajectory(id=f"{task}/{number}", task=Task(id=task), rollout=number, steps=steps)


def make_update(*trajectories: Trajectory) -> ObservedUpdate:
    return ObservedUpdate(number=1, trajectories=trajectories, credit=[None] * len(trajectories))
