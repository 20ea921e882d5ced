"""Evaluating a run: its panel, played with its engine's weights, and written into its journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groupwise.core.records import Trajectory
from groupwise.envs.part_queries import ask_panel
from groupwise.evaluation.evaluate import evaluate
from groupwise.evaluation.settings import EvaluationConfig
from groupwise.evaluation.summary import Evaluation
from groupwise.training.run import Run


def evaluate_run(
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
    config = run.config
    settings = settings or config.evaluation
    evaluation = evaluate(
        run.player,
        ask_panel(config.env, settings.split),
        settings,
        rewards=config.rewards,
        root=config.seed,
        seeds=seeds,
        report=report,
    )
    if write:
        with run.lock.hold():
            run.lock.check()
            run.journal.write_evaluation(evaluation.rows)
    return evaluation
