"""Evaluation on a fixed panel: success with a 95 % interval, over one or several seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from groupwise.core.errors import ConfigError, TrainingError
from groupwise.core.journal import Evaluated
from groupwise.core.records import FAULTS, Task, Trajectory
from groupwise.core.run_folder import RunPaths
from groupwise.core.seeds import seed_of
from groupwise.envs.asking import ask_panel
from groupwise.envs.panel import panel_hash
from groupwise.rewards import rescored
from groupwise.rollout.collect import Attempt
from groupwise.training.checkpoint import load_checkpoint
from groupwise.training.checkpoint_state import latest_checkpoint
from groupwise.training.evaluation_summary import Evaluation
from groupwise.training.gather import play
from groupwise.training.run import Run, open_run
from groupwise.training.run_config import EvaluationConfig, RunConfig


def evaluate(
    run: Run,
    *,
    seeds: Sequence[int] = (0,),
    settings: EvaluationConfig | None = None,
    write: bool = True,
    report: Callable[[int, Sequence[Trajectory]], None] = lambda seed, played: None,
) -> Evaluation:
    """Play a panel with the engine's weights, once with each seed; nothing learns from it.

    Args:
        run: whose engine plays. The version of its weights is the update after which the evaluation counts.
        seeds: repetitions; each draws other tokens at the same tasks.
        settings: which tasks and how; None = the run's own.
        write: whether the run's journal keeps the attempts.
        report: called after each seed with what was played.
    """
    config = settings or run.config.evaluation
    tasks = ask_panel(run.config.env, config.split)[: config.tasks]
    if not (tasks and seeds):
        raise ConfigError("an evaluation of no task says nothing; raise evaluation.tasks, and give at least one seed")
    panel, rows, played = panel_hash(tasks), list[Evaluated](), list[Trajectory]()
    for seed in seeds:
        found = _play(run, config, tasks, seed)
        rows += [_row(trajectory, run.engine.version, config.split, seed, panel) for trajectory in found]
        played += found
        report(seed, found)
    evaluation = Evaluation.of(rows, played)
    if write:
        with run.lock.held():
            run.journal.write_evaluation(rows)
    return evaluation


def open_at(config: RunConfig, folder: Path, number: int | None = None, *, read_only: bool = False) -> Run:
    """Open a run with the weights of one of its checkpoints; None = the latest."""
    paths = RunPaths(folder)
    path = latest_checkpoint(paths.checkpoints) if number is None else paths.checkpoint(number)
    if path is None or not path.is_dir():
        known = ", ".join(str(int(each.name)) for each in sorted(paths.checkpoints.glob("[0-9]*")))
        wanted = "no checkpoint" if number is None else f"no checkpoint {number}"
        raise ConfigError(f"{folder}: there is {wanted}; there are: {known or 'none yet'}")
    run = open_run(config, folder, read_only=read_only)
    run.hand_over(int(load_checkpoint(path, run.learner)["update"]))
    return run


def _play(run: Run, config: EvaluationConfig, tasks: Sequence[Task], seed: int) -> list[Trajectory]:
    attempts = [
        Attempt(task=task, number=number, seed=seed_of(run.config.seed, "evaluation", seed, task.id, number))
        for task in tasks
        for number in range(config.attempts)
    ]
    played = play(run, attempts, temperature=config.temperature)
    if not any("success" in trajectory.scores for trajectory in played):
        causes = Counter(trajectory.error or trajectory.stop.value for trajectory in played)
        listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
        raise TrainingError(
            f"evaluation on split {config.split!r}: none of {len(played)} attempts says whether it succeeded "
            f"({listed}); mend the environment, which `groupwise check env` looks at"
        )
    return [
        trajectory if trajectory.stop in FAULTS else rescored(trajectory, run.config.rewards) for trajectory in played
    ]


def _row(trajectory: Trajectory, number: int, split: str, seed: int, panel: str) -> Evaluated:
    total = sum(step.reward for step in trajectory.steps)
    return Evaluated(
        number=number,
        split=split,
        seed=seed,
        task=trajectory.task.id,
        attempt=trajectory.attempt,
        panel=panel,
        tags=",".join(trajectory.task.tags),
        stop=trajectory.stop.value,
        success=trajectory.scores.get("success"),
        outcome=total if trajectory.outcome is None else trajectory.outcome,
        steps=len(trajectory.steps),
        tokens=sum(len(step.response_ids) for step in trajectory.steps),
    )
