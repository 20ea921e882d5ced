"""`groupwise evaluate`: play a panel with a run's weights, over several seeds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from groupwise.cli.arguments.run_folders import need_trainer, run_config
from groupwise.cli.arguments.trust import Trust
from groupwise.cli.terminal.screen import errors, output, per_cent, print_json

if TYPE_CHECKING:
    from groupwise.evaluation.settings import EvaluationConfig
    from groupwise.evaluation.summary import Evaluation, PassAt, TasksSummary
    from groupwise.training.run_config import RunConfig


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    checkpoint: Annotated[int | None, typer.Option(min=0, help="After which update; the latest otherwise.")] = None,
    split: Annotated[str | None, typer.Option(help="Panel of tasks; the run file's otherwise.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="How many of its tasks, from the first.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions; each draws other tokens.")] = 3,
    attempts: Annotated[int | None, typer.Option(min=1, help="Attempts at each task and seed.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 = always the likeliest token.")] = None,
    per_task: Annotated[bool, typer.Option("--per-task", help="Show every task.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    dry: Annotated[bool, typer.Option("--dry", help="Leave the run's folder as it is; the run may go on.")] = False,
    trust: Trust = False,
) -> None:
    """Evaluate a run: success over several seeds with its 95 % interval, pass@k, by family and by task."""
    need_trainer()
    config = run_config(run)
    given = {"split": split, "tasks": tasks, "attempts": attempts, "temperature": temperature}
    settings = _settings(config, {name: value for name, value in given.items() if value is not None})
    from groupwise.training.checkpoints.resume import open_run_at
    from groupwise.training.evaluate_run import evaluate_run

    with _status(f"playing {settings.tasks} tasks of split {settings.split} with {seeds} seeds"):
        # Of an update and a split the journal keeps one evaluation; one with other settings would pass for it.
        keeps = not dry and settings == config.evaluation.model_copy(update={"split": settings.split})
        opened = open_run_at(config, run, checkpoint, read_only=not keeps)
        with opened.journal:
            found = evaluate_run(opened, seeds=range(seeds), settings=settings, write=keeps)
    if not keeps and not dry:
        errors().print("not kept in the journal: the settings are not those of the run", highlight=False)
    if as_json:
        print_json(_as_json(found, per_task=per_task))
    else:
        _print(output(), run, found, settings, per_task=per_task)


def in_words(found: Evaluation) -> str:
    """An evaluation in a line."""
    each = "" if found.attempts == found.tasks else f" x {found.attempts / found.tasks:g} attempts"
    return f"success {_share(found)} over {found.tasks} tasks{each} of split {found.split}"


def _settings(config: RunConfig, given: dict[str, Any]) -> EvaluationConfig:
    """The run's own settings of an evaluation, with what the command line says on top; both are checked alike."""
    return type(config.evaluation)(**{**config.evaluation.config(), **given})


def _status(text: str) -> Any:
    return errors().status(text) if sys.stderr.isatty() else nullcontext()


def _share(line: Evaluation | TasksSummary | PassAt) -> str:
    low, high = line.interval
    return f"{per_cent(line.success)} [{100 * low:.1f}, {100 * high:.1f}]"


def _print(console: Console, folder: Path, found: Evaluation, settings: EvaluationConfig, *, per_task: bool) -> None:
    console.print(
        f"[bold]{escape(str(folder))}[/] after update {found.number}: {found.tasks} tasks of split "
        f"{escape(found.split)}, seeds {', '.join(map(str, found.by_seed))}, {settings.attempts} "
        f"attempt{'s' if settings.attempts > 1 else ''} each, "
        f"temperature {settings.temperature:g}",
        highlight=False,
    )
    console.print(f"\nsuccess  [bold]{_share(found)}[/]  (95 % interval for tasks of this kind)", highlight=False)
    by_seed = "  ".join(f"seed {seed}: {per_cent(share)}" for seed, share in found.by_seed.items())
    console.print(f"         {by_seed}", highlight=False)
    if found.attempts_per_task > 1:
        _print_pass_at(console, found)
    console.print(f"return   {found.outcome:.3f}\nsteps    {found.steps:.2f}", highlight=False)
    if found.tokens is not None:
        console.print(f"tokens   {found.tokens:.1f}", highlight=False)
    console.print(f"panel    {found.panel[:12]}", highlight=False)
    if found.faults:
        console.print(
            f"[yellow]faults   {found.faults} attempts ended with an error and are not counted[/]", highlight=False
        )
    for title, lines in (("family", found.by_tag()), ("task", found.by_task() if per_task else [])):
        if lines:
            console.print()
            console.print(_table(title, lines))


def _print_pass_at(console: Console, found: Evaluation) -> None:
    console.print(f"{f'mean@{found.attempts_per_task}':<9}{_share(found)}", highlight=False)
    for line in found.pass_at():
        fewer = f"  (of {line.tasks} tasks with so many attempts)" if line.tasks < found.tasks else ""
        console.print(f"{f'pass@{line.k}':<9}{_share(line)}{fewer}", highlight=False)


def _table(title: str, lines: Sequence[TasksSummary]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(title, style="bold")
    for name in ("tasks", "attempts", "success", "95 % interval", "steps"):
        table.add_column(name, justify="right")
    for line in lines:
        low, high = line.interval
        interval = f"{100 * low:.1f} to {100 * high:.1f}" if line.tasks > 1 else ""
        table.add_row(
            escape(line.name),
            str(line.tasks),
            str(line.attempts),
            per_cent(line.success),
            interval,
            f"{line.steps:.1f}",
        )
    return table


def _as_json(found: Evaluation, *, per_task: bool) -> dict[str, Any]:
    names = ("number", "split", "panel", "tasks", "attempts", "faults", "success", "interval", "outcome", "steps")
    content = {name: getattr(found, name) for name in (*names, "tokens")} | {"by_seed": dict(found.by_seed)}
    content["mean_at"] = {"n": found.attempts_per_task, "success": found.success, "interval": found.interval}
    content["pass_at"] = [asdict(line) for line in found.pass_at()]
    content["families"] = [_line_as_json(line) for line in found.by_tag()]
    if per_task:
        content["per_task"] = [_line_as_json(line) for line in found.by_task()]
    return content


def _line_as_json(line: TasksSummary) -> dict[str, Any]:
    return {name: getattr(line, name) for name in ("name", "tasks", "attempts", "success", "interval", "steps")}
