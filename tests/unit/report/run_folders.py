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
from groupwise.envs.kit.panel import panel_hash
from groupwise.store.journal import EvaluatedAttempt, Journal, Update

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
            "plan": {"kind": "flat", "attempts": 4},
            "memory": {"kind": "window", "steps": 2},
        },
        "training": {"updates": 6, "tasks": 4, "learner": {"learning_rate": 0.0005}},
        "evaluation": {"split": "test", "tasks": 40, "attempts": 1, "temperature": 0.4},
    } | changes


def play(task: Task, attempt: int, skill: float, seed: int) -> Trajectory:
    """An attempt by an agent that follows the expert so often, and else does something that comes to its mind."""
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
        id=f"{task.id}/{attempt}",
        task=task,
        attempt=attempt,
        steps=tuple(steps),
        scores={"success": float(bool(outcome.success)), "return": sum(step.reward for step in steps)},
        stop=StopReason.TERMINATED if outcome.terminated else StopReason.TRUNCATED,
    )


def play_update(number: int, *, tasks: int, attempts: int, skill: float) -> list[Trajectory]:
    """The attempts of an update."""
    panel = ENV.panel("train")
    return [
        play(panel[((number - 1) * tasks + place) % len(panel)], attempt, skill, seed_of(0, number, place, attempt))
        for place in range(tasks)
        for attempt in range(attempts)
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
        "credit/compared": 0.99 - 0.1 * done + 0.01 * draw.random(),
        "loss/total": -0.05 * done + 0.02 * draw.gauss(0, 1),
        "loss/kl_to_reference": 0.3 * done**2 + 0.01 * draw.random(),
        "learner/grad_norm": 0.4 + 0.3 * draw.random(),
        "seconds/rollout": 3.0 + draw.random(),
        "seconds/credit": 0.02,
        "seconds/learn": 4.0 + draw.random(),
        "seconds/handover": 0.01,
    }


def play_panel(number: int, *, tasks: int, skill: float, split: str = "test") -> list[EvaluatedAttempt]:
    """An evaluation, one attempt a task."""
    panel = ENV.panel(split)[:tasks]
    trajectories = [play(task, 0, skill, seed_of(1, number, place)) for place, task in enumerate(panel)]
    return [
        EvaluatedAttempt(
            number=number,
            split=split,
            seed=0,
            task=trajectory.task.id,
            attempt=0,
            panel=panel_hash(panel),
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
    attempts: int = 4,
    algorithm: Algorithm | None = None,
    evaluations: Sequence[int] = (),
    evaluation_tasks: int = 40,
    **changes: Any,
) -> Path:
    """Write the folder of a run; `evaluations` are the updates after which the test panel was played."""
    method = algorithm or methods.hgpo()
    changes = ({"made_by": {"recipe": "hgpo"}} if algorithm is None else {}) | changes
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(tomli_w.dumps(settings(method, **changes)), encoding="utf-8")
    with Journal(folder / "journal.sqlite") as journal:
        for number in range(1, updates + 1):
            trajectories = play_update(number, tasks=tasks, attempts=attempts, skill=skill_at(number / updates))
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
            journal.write_evaluation(play_panel(number, tasks=evaluation_tasks, skill=skill))
    return folder
