"""Evaluate a policy on a fixed task set, with one or several seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from groupwise.credit import score_trajectory
from groupwise.data.records import FAULTS, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.envs.kit.task_set import task_set_hash
from groupwise.envs.part_queries import ask_task_set
from groupwise.rollout.episodes import Rollout
from groupwise.store.journal import EvaluatedRollout
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.config.run_config import EvaluationConfig
from groupwise.training.evaluation.summary import Evaluation
from groupwise.training.run import Run


def evaluate_run(
    run: Run,
    *,
    seeds: Sequence[int] = (0,),
    settings: EvaluationConfig | None = None,
    write: bool = True,
    report: Callable[[int, Sequence[Trajectory]], None] = lambda seed, played: None,
) -> Evaluation:
    """Run rollouts on a task set with the engine's weights, once per seed.

    Args:
        run: its engine's policy version is the update of the evaluation.
        seeds: sampling seeds; the tasks are the same.
        settings: None = the run's own.
        write: whether the journal keeps the rollouts.
        report: called after each seed with its rollouts.
    """
    config, player = run.config, run.player
    settings = settings or config.evaluation
    tasks = ask_task_set(config.env, settings.split)[: settings.tasks]
    if not (tasks and seeds):
        raise ConfigError("an evaluation needs tasks and seeds; raise evaluation.tasks, and give at least one seed")
    digest, rows, trajectories = task_set_hash(tasks), list[EvaluatedRollout](), list[Trajectory]()
    for seed in seeds:
        rollouts = [
            Rollout(task=task, number=number, seed=seed_of(config.seed, "evaluation", seed, task.id, number))
            for task in tasks
            for number in range(settings.rollouts)
        ]
        scored = [
            trajectory
            if trajectory.stop in FAULTS
            else score_trajectory(trajectory, config.rewards, read_response=player.prompter.text)
            for trajectory in player.play(rollouts, temperature=settings.temperature)
        ]
        if not any("success" in trajectory.scores for trajectory in scored):
            causes = Counter(trajectory.error or trajectory.stop.value for trajectory in scored)
            listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
            raise TrainingError(
                f"evaluation on split {settings.split!r}: none of {len(scored)} rollouts says whether it succeeded "
                f"({listed}); fix the environment, which `groupwise check env` tests"
            )
        rows += [_make_row(trajectory, player.engine.version, settings.split, seed, digest) for trajectory in scored]
        trajectories += scored
        report(seed, scored)
    evaluation = Evaluation.from_rows(rows, trajectories)
    if write:
        with run.lock.hold():
            run.lock.check()
            run.journal.write_evaluation(evaluation.rows)
    return evaluation


def _make_row(trajectory: Trajectory, number: int, split: str, seed: int, task_set: str) -> EvaluatedRollout:
    total = sum(step.reward for step in trajectory.steps)
    return EvaluatedRollout(
        number=number,
        split=split,
        seed=seed,
        task=trajectory.task.id,
        rollout=trajectory.rollout,
        task_set=task_set,
        tags=",".join(trajectory.task.tags),
        stop=trajectory.stop.value,
        success=trajectory.scores.get("success"),
        outcome=total if trajectory.outcome is None else trajectory.outcome,
        steps=len(trajectory.steps),
        tokens=sum(len(step.response_ids) for step in trajectory.steps),
    )
