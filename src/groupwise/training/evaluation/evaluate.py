"""Evaluate a policy on a fixed task set, with one or several seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from groupwise.credit import score_trajectory
from groupwise.data.records import FAULTS, Task, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.envs.kit.task_set import task_set_hash
from groupwise.envs.mixture import limit_steps
from groupwise.envs.part_queries import ask_task_set
from groupwise.rollout.environment_runner import open_host
from groupwise.rollout.episodes import Player, Rollout
from groupwise.store.journal import EvaluatedRollout
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.config.run_config import EvaluationConfig, RunConfig
from groupwise.training.evaluation.summary import Evaluation, describe_task_set
from groupwise.training.run import Run


def evaluate_run(
    run: Run,
    *,
    seeds: Sequence[int] = (0,),
    settings: EvaluationConfig | None = None,
    name: str | None = None,
    only: Collection[str] | None = None,
    write: bool = True,
    report: Callable[[int, Sequence[Trajectory]], None] = lambda seed, played: None,
) -> Evaluation:
    """Run rollouts on a task set with the engine's weights, once per seed.

    Args:
        run: its engine's policy version is the update of the evaluation.
        seeds: sampling seeds; the tasks are the same.
        settings: of one task set; None = those of the run's first.
        name: the task set's name in the journal; None = that of its split, or of the run's first task set.
        only: ids of the tasks that are evaluated, of those in the split; None = the first `settings.tasks`.
        write: whether the journal keeps the rollouts.
        report: called after each seed with its rollouts.
    """
    config = run.config
    if settings is None:
        name, settings = name or config.evaluation.main, config.evaluation.by_name().get(config.evaluation.main)
    tasks = () if settings is None else _choose_tasks(config, settings, only)
    if settings is None or not tasks or not seeds:
        raise ConfigError("an evaluation needs tasks and seeds; raise evaluation.tasks, and give at least one seed")
    with _open_player(run, settings) as player:
        evaluation = _evaluate(run, player, settings, name or settings.split, tasks, seeds, report)
    if write:
        with run.lock.hold():
            run.lock.check()
            run.journal.write_evaluation(evaluation.rows)
    return evaluation


@contextmanager
def _open_player(run: Run, settings: EvaluationConfig) -> Iterator[Player]:
    """The run's player with the limits of an evaluation."""
    config = run.config
    player = replace(
        run.player,
        max_tokens=settings.max_tokens or config.rollout.max_tokens,
        top_p=settings.top_p,
        top_k=settings.top_k,
    )
    env = config.env if settings.steps is None else limit_steps(config.env, settings.steps)
    if env == config.env:
        yield player
        return
    with open_host(env, workers=config.num_workers, timeout=config.rollout.env_timeout) as host:
        yield replace(player, host=host)


def match_tasks(
    config: RunConfig, task_sets: Mapping[str, EvaluationConfig], ids: Collection[str]
) -> dict[str, frozenset[str]]:
    """Which of some task ids are in each task set; task sets without any are left out."""
    matched = {
        name: frozenset(task.id for task in ask_task_set(config.env, settings.split) if task.id in ids)
        for name, settings in task_sets.items()
    }
    if unknown := sorted(set(ids).difference(*matched.values())):
        splits = ", ".join(sorted({settings.split for settings in task_sets.values()}))
        raise ConfigError(
            f"{len(unknown)} of {len(set(ids))} ids are no tasks of the split {splits}, such as {unknown[0]!r}; "
            "`groupwise evaluate RUN --per-task --json` lists the ids"
        )
    return {name: found for name, found in matched.items() if found}


def _choose_tasks(config: RunConfig, settings: EvaluationConfig, only: Collection[str] | None) -> tuple[Task, ...]:
    tasks = ask_task_set(config.env, settings.split)
    return tasks[: settings.tasks] if only is None else tuple(task for task in tasks if task.id in only)


def _evaluate(
    run: Run,
    player: Player,
    settings: EvaluationConfig,
    name: str,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    report: Callable[[int, Sequence[Trajectory]], None],
) -> Evaluation:
    config = run.config
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
                f"evaluation on {describe_task_set(name, settings.split)}: none of {len(scored)} rollouts says whether "
                f"it succeeded ({listed}); fix the environment, which `groupwise check env` tests"
            )
        rows += [_make_row(trajectory, run.engine.version, name, settings, seed, digest) for trajectory in scored]
        trajectories += scored
        report(seed, scored)
    return Evaluation.from_rows(rows, trajectories)


def _make_row(
    trajectory: Trajectory, number: int, name: str, settings: EvaluationConfig, seed: int, task_set: str
) -> EvaluatedRollout:
    total = sum(step.reward for step in trajectory.steps)
    return EvaluatedRollout(
        number=number,
        name=name,
        split=settings.split,
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
        score=_read_score(trajectory, settings.score) if settings.score and trajectory.stop not in FAULTS else None,
    )


def _read_score(trajectory: Trajectory, info_key: str) -> float:
    """The step info of the last step; 0 if the rollout ended without it."""
    value = trajectory.steps[-1].info.get(info_key) if trajectory.steps else None
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(
            f"evaluation.score: the step info {info_key!r} of {trajectory.describe()} is {value!r}; name one that is a "
            "finite number"
        )
    return float(value)
