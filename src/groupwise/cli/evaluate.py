"""`groupwise evaluate`: run a task set with the weights of a run, over several seeds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from groupwise.cli.arguments import Set, Trust, Unset, argument, flag, load_run_config, need_trainer, option
from groupwise.cli.live import format_success, tell_progress
from groupwise.cli.screen import errors, format_plain_percent, make_table, output, print_json, print_line

if TYPE_CHECKING:
    from groupwise.training.config.run_config import EvaluationConfig
    from groupwise.training.evaluation.summary import Evaluation, TasksSummary


def evaluate(
    run: Annotated[Path, argument("RUN", "Run folder.")],
    update: Annotated[int | None, option("N", "Update of the checkpoint; default: the latest.", min=0)] = None,
    split: Annotated[str | None, option("NAME", "Task set, such as test; default: that of the run file.")] = None,
    tasks: Annotated[
        int | None, option("N", "Number of tasks, from the first; default: that of the run file.", min=1)
    ] = None,
    seeds: Annotated[int, option("N", "Repeat the evaluation with this many sampling seeds.", min=1)] = 3,
    rollouts: Annotated[
        int | None, option("N", "Rollouts per task and seed; default: that of the run file.", min=1)
    ] = None,
    temperature: Annotated[
        float | None, option("NUMBER", "Sampling temperature; 0 = greedy; default: that of the run file.", min=0)
    ] = None,
    per_task: Annotated[bool, flag("--per-task", "Print one line per task.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the result as JSON.")] = False,
    set_: Set = None,
    unset: Unset = None,
    dry_run: Annotated[bool, flag("--dry-run", "Evaluate, but write nothing to the run folder.")] = False,
    trust: Trust = False,
) -> None:
    """Evaluate a run on a task set, with several seeds. Success has a 95 % interval and is also shown by category."""
    need_trainer()
    config = load_run_config(run, set_, unset)
    overrides = {"split": split, "tasks": tasks, "rollouts": rollouts, "temperature": temperature}
    given = {name: value for name, value in overrides.items() if value is not None}
    settings = type(config.evaluation)(**{**config.evaluation.config(), **given})
    from groupwise.training.checkpoints import open_run_at
    from groupwise.training.evaluation.evaluate import evaluate_run

    status = f"running {settings.tasks} tasks of split {settings.split} with {seeds} seeds"
    # Elsewhere than on a terminal: a line every few seconds on standard error.
    say = partial(print_line, to=errors())
    shown: Any = errors().status(status) if sys.stderr.isatty() else tell_progress(status, say)
    with shown:
        # The journal keeps one evaluation per update and split: do not replace it by one with other settings.
        is_own = not set_ and not unset and settings == config.evaluation.model_copy(update={"split": settings.split})
        keeps = is_own and not dry_run
        with open_run_at(config, run, update, read_only=not keeps) as opened:
            evaluation = evaluate_run(opened, seeds=range(seeds), settings=settings, write=keeps)
    if not keeps and not dry_run:
        print_line("not saved in the journal: the settings are not those of the run", to=errors())
    if as_json:
        print_json(_evaluation_as_json(evaluation, per_task=per_task))
    else:
        _print_evaluation(output(), run, evaluation, settings, per_task=per_task)


def _print_evaluation(
    console: Console, folder: Path, evaluation: Evaluation, settings: EvaluationConfig, *, per_task: bool
) -> None:
    console.print(
        f"[bold]{escape(str(folder))}[/] after update {evaluation.number}: {evaluation.tasks} tasks of split "
        f"{escape(evaluation.split)}, seeds {', '.join(map(str, evaluation.by_seed))}, {settings.rollouts} "
        f"rollout{'s' if settings.rollouts > 1 else ''} each, "
        f"temperature {settings.temperature:g}"
    )
    console.print(f"\nsuccess  [bold]{format_success(evaluation)}[/]  (95 % interval for tasks of this kind)")
    by_seed = "  ".join(f"seed {seed}: {format_plain_percent(share)}" for seed, share in evaluation.by_seed.items())
    console.print(f"         {by_seed}")
    if evaluation.rollouts_per_task > 1:
        console.print(f"{f'mean@{evaluation.rollouts_per_task}':<9}{format_success(evaluation)}")
        for line in evaluation.pass_at():
            fewer = f"  ({line.tasks} tasks have so many rollouts)" if line.tasks < evaluation.tasks else ""
            console.print(f"{f'pass@{line.k}':<9}{format_success(line)}{fewer}")
    console.print(f"return   {evaluation.outcome:.3f}\nsteps    {evaluation.steps:.2f}")
    if evaluation.tokens is not None:
        console.print(f"tokens   {evaluation.tokens:.1f}")
    console.print(f"task_set    {evaluation.task_set[:12]}")
    if evaluation.faults:
        console.print(f"[yellow]errors   {evaluation.faults} rollouts ended with an error and are not counted[/]")
    for title, lines in (("family", evaluation.by_tag()), ("task", evaluation.by_task() if per_task else [])):
        if lines:
            console.print()
            console.print(_make_table(title, lines))


def _make_table(title: str, lines: Sequence[TasksSummary]) -> Table:
    table = make_table(title, "tasks", "rollouts", "success", "95 % interval", "steps", bold=True)
    for line in lines:
        low, high = line.interval
        interval = f"{100 * low:.1f} to {100 * high:.1f}" if line.tasks > 1 else ""
        table.add_row(
            escape(line.name),
            str(line.tasks),
            str(line.rollouts),
            format_plain_percent(line.success),
            interval,
            f"{line.steps:.1f}",
        )
    return table


def _evaluation_as_json(evaluation: Evaluation, *, per_task: bool) -> dict[str, Any]:
    names = ("number", "split", "task_set", "tasks", "rollouts", "faults", "success", "interval", "outcome", "steps")
    content = {name: getattr(evaluation, name) for name in (*names, "tokens")} | {"by_seed": dict(evaluation.by_seed)}
    content["mean_at"] = {
        "n": evaluation.rollouts_per_task,
        "success": evaluation.success,
        "interval": evaluation.interval,
    }
    content["pass_at"] = [asdict(line) for line in evaluation.pass_at()]
    content["categories"] = [_summary_as_json(line) for line in evaluation.by_tag()]
    if per_task:
        content["per_task"] = [_summary_as_json(line) for line in evaluation.by_task()]
    return content


def _summary_as_json(line: TasksSummary) -> dict[str, Any]:
    return {name: getattr(line, name) for name in ("name", "tasks", "rollouts", "success", "interval", "steps")}
