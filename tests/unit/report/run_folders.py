"""Folders of runs that never were: a household agent whose skill grows, with true credit and evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from groupwise import Algorithm, Step, StepTable, StopReason, Task, Trajectory, methods
from groupwise.data.seeds import seed_of
from groupwise.envs import Household
from groupwise.envs.kit.task_set import task_set_hash
from groupwise.store.journal import EvaluatedRollout, Journal, Update

ENV = Household()


def settings(algorithm: Algorithm, **changes: Any) -> dict[str, Any]:
    """A resolved configuration, as `groupwise train` writes it."""
    return {
        "seed": 0,
        "algorithm": algorithm.config(),
        "env": ENV.config(),
        "model": {"kind": "tiny", "hidden": 128, "layers": 3, "heads": 4, "expansion": 3, "context": 2048},
        "rollout": {
            "max_tokens": 8,
            "temperature": 1.0,
            "group_size": 4,
            "history": {"kind": "window", "steps": 2},
        },
        "training": {"updates": 6, "tasks": 4, "learner": {"learning_rate": 0.0005}},
        "evaluation": {"split": "test", "tasks": 40, "rollouts": 1, "temperature": 0.4},
    } | changes


def play(task: Task, rollout: int, skill: float, seed: int) -> Trajectory:
    """A rollout by an agent that follows the expert so often, and else does something that comes to its mind."""
    draw, env = Random(seed), ENV.open(task)
    steps: list[Step] = []
    outcome = None
    while outcome is None or not outcome.ended:
        seen = env.observe()
        idle = "dance" if draw.random() < 0.3 else draw.choice(seen.admissible or ("look",))
        action = env.expert() if draw.random() < skill else idle
        outcome = env.act(action or idle)
        steps.append(
            Step(
                index=len(steps),
                reward=outcome.reward,
                state_key=seen.state_key,
                observation=seen.text,
                action=action,
                accepted=outcome.accepted,
                prompt_ids=(1, 2, 3),
                response_ids=(4, 5),
            )
        )
    return Trajectory(
        id=f"{task.id}/{rollout}",
        task=task,
        rollout=rollout,
        steps=tuple(steps),
        scores={"success": float(bool(outcome.success)), "return": sum(step.reward for step in steps)},
        stop=StopReason.TERMINATED if outcome.terminated else StopReason.TRUNCATED,
    )


def play_update(number: int, *, tasks: int, rollouts: int, skill: float) -> list[Trajectory]:
    """The rollouts of an update."""
    task_set = ENV.task_set("train")
    return [
        play(
            task_set[((number - 1) * tasks + place) % len(task_set)], rollout, skill, seed_of(0, number, place, rollout)
        )
        for place in range(tasks)
        for rollout in range(rollouts)
    ]


def credit_of(algorithm: Algorithm, trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """The credit of each trajectory's steps."""
    values = iter(algorithm.advantage(StepTable.from_trajectories(trajectories)).values.tolist())
    return [[next(values) for _ in trajectory.steps] for trajectory in trajectories]


def metrics_of(trajectories: Sequence[Trajectory], number: int, updates: int) -> dict[str, float]:
    """Metrics as the loop would write them; those of the learner are made up."""
    draw, done = Random(number), number / max(updates, 1)
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    return {
        "rollout/success": sum(t.scores["success"] for t in trajectories) / len(trajectories),
        "rollout/return": sum(t.scores["return"] for t in trajectories) / len(trajectories),
        "rollout/steps": len(steps) / len(trajectories),
        "rollout/valid": sum(bool(step.valid) for step in steps) / len(steps),
        "rollout/entropy": 1.6 * (1 - done) ** 2 + 0.25 + 0.06 * draw.random(),
        "advantage/compared": 0.99 - 0.1 * done + 0.01 * draw.random(),
        "loss/total": -0.05 * done + 0.02 * draw.gauss(0, 1),
        "loss/kl_to_reference": 0.3 * done**2 + 0.01 * draw.random(),
        "learner/grad_norm": 0.4 + 0.3 * draw.random(),
        "seconds/rollout": 3.0 + draw.random(),
        "seconds/advantages": 0.02,
        "seconds/learn": 4.0 + draw.random(),
        "seconds/sync": 0.01,
    }


def play_task_set(number: int, *, tasks: int, skill: float, split: str = "test") -> list[EvaluatedRollout]:
    """An evaluation, one rollout a task."""
    task_set = ENV.task_set(split)[:tasks]
    trajectories = [play(task, 0, skill, seed_of(1, number, place)) for place, task in enumerate(task_set)]
    return [
        EvaluatedRollout(
            number=number,
            name=split,
            split=split,
            seed=0,
            task=trajectory.task.id,
            rollout=0,
            task_set=task_set_hash(task_set),
            tags=",".join(trajectory.task.tags),
            stop=trajectory.stop.value,
            success=trajectory.scores["success"],
            outcome=trajectory.scores["return"],
            steps=len(trajectory.steps),
        )
        for trajectory in trajectories
    ]


def skill_at(done: float) -> float:
    """How often the agent follows the expert, from the start of training (0) to its end (1)."""
    return 0.22 + 0.38 * min(1.0, 1.15 * done) ** 0.8


def write_run(
    folder: Path,
    *,
    updates: int = 6,
    tasks: int = 4,
    rollouts: int = 4,
    algorithm: Algorithm | None = None,
    evaluations: Sequence[int] = (),
    evaluation_tasks: int = 40,
    **changes: Any,
) -> Path:
    """Write the folder of a run; `evaluations` are the updates after which the test task set was played."""
    method = algorithm or methods.hgpo()
    changes = ({"made_by": {"method": "hgpo"}} if algorithm is None else {}) | changes
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(tomli_w.dumps(settings(method, **changes)), encoding="utf-8")
    with Journal(folder / "journal.sqlite") as journal:
        for number in range(1, updates + 1):
            trajectories = play_update(number, tasks=tasks, rollouts=rollouts, skill=skill_at(number / updates))
            journal.write(
                Update(
                    number=number,
                    version=number,
                    metrics=metrics_of(trajectories, number, updates),
                    trajectories=trajectories,
                    credit=credit_of(method, trajectories),
                )
            )
        for number in evaluations:
            skill = skill_at(number / max(updates, 1))
            journal.write_evaluation(play_task_set(number, tasks=evaluation_tasks, skill=skill))
    return folder
