"""Updates of two rollouts at one task, as a journal takes them."""

from __future__ import annotations

from groupwise import Step, StopReason, Task, Trajectory
from groupwise.store.journal import Update

TASK = Task.create(env="identity", seed=1)


def trajectory(rollout: int, *rewards: float) -> Trajectory:
    steps = tuple(
        Step(index=i, reward=reward, state_key=f"s{i}", action="go", prompt_ids=(1, 2), response_ids=(3,))
        for i, reward in enumerate(rewards)
    )
    return Trajectory(
        id=f"{TASK.id}/{rollout}",
        task=TASK,
        rollout=rollout,
        steps=steps,
        scores={"success": rewards[-1]},
        stop=StopReason.TERMINATED,
    )


def update(number: int) -> Update:
    return Update(
        number=number,
        version=number,
        metrics={"rollout/success": number / 10, "loss/total": 0.5},
        trajectories=[trajectory(0, 0.0, 1.0), trajectory(1, 0.0)],
        credit=[[0.5, 0.25], [-0.75]],
    )
