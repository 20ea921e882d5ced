"""`groupwise evaluate`: run task sets with the weights of a run, over several seeds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from groupwise.cli.arguments import Set, Trust, Unset, argument, flag, load_run_config, need_trainer, option
from groupwise.cli.live import format_success, tell_progress
from groupwise.cli.screen import errors, format_plain_percent, make_table, output, print_json, print_line
from groupwise.system.errors import ConfigError, nearest
from groupwise.system.files import read_text_file
from groupwise.training.evaluation.summary import TasksSummary, describe_task_set

if TYPE_CHECKING:
    from groupwise.training.config.run_config import EvaluationConfig
    from groupwise.training.evaluation.summary import Evaluation


def evaluate(
    run: Annotated[Path, argument("RUN", "Run folder.")],
    update: Annotated[int | None, option("N", "Update of the checkpoint; default: the latest.", min=0)] = None,
    task_set: Annotated[
        str | None, option("NAME", "One of the run file's [[evaluation.task_sets]]; default: all of them.")
    ] = None,
    split: Annotated[str | None, option("NAME", "Task set, such as test; default: that of the run file.")] = None,
    tasks: Annotated[
        int | None, option("N", "Number of tasks, from the first; default: that of the run file.", min=1)
    ] = None,
    only: Annotated[
        Path | None, option("FILE", "Evaluate only the tasks whose ids are in a file, one per line.")
    ] = None,
    seeds: Annotated[int, option("N", "Repeat the evaluation with this many sampling seeds.", min=1)] = 3,
    rollouts: Annotated[
        int | None, option("N", "Rollouts per task and seed; default: that of the run file.", min=1)
    ] = None,
    temperature: Annotated[
        float | None, option("NUMBER", "Sampling temperature; 0 = greedy; default: that of the run file.", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, option("N", "Largest number of tokens per response; default: that of the run file.", min=1)
    ] = None,
    per_task: Annotated[bool, flag("--per-task", "Print one line per task.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the result as JSON.")] = False,
    set_: Set = None,
    unset: Unset = None,
    dry_run: Annotated[bool, flag("--dry-run", "Evaluate, but write nothing to the run folder.")] = False,
    trust: Trust = False,
) -> None:
    """Evaluate a run on its task sets, with several seeds: success with a 95 % interval, also by category."""
    need_trainer()
    config = load_run_config(run, set_, unset)
    ids = None if only is None else _read_ids(only)
    tasks = tasks if ids is None else len(ids)
    overrides = {"tasks": tasks, "rollouts": rollouts, "temperature": temperature, "max_tokens": max_tokens}
    given = {name: value for name, value in overrides.items() if value is not None}
    task_sets = _choose_task_sets(config.evaluation, task_set, split, given)
    from groupwise.training.checkpoints import open_run_at
    from groupwise.training.evaluation.evaluate import evaluate_run, match_tasks

    chosen = dict.fromkeys(task_sets) if ids is None else match_tasks(config, task_sets, ids)
    # The journal keeps one evaluation per update and task set: do not replace it by one with other settings.
    own = config.evaluation.by_name()
    is_own = all(
        settings == own.get(name, config.evaluation.model_copy(update={"split": settings.split}))
        for name, settings in task_sets.items()
    )
    keeps = is_own and not (set_ or unset or only or dry_run)
    status = f"running {', '.join(_describe(task_sets[name], name) for name in chosen)} with {seeds} seeds"
    # Elsewhere than on a terminal: a line every few seconds on standard error.
    say = partial(print_line, to=errors())
    shown: Any = errors().status(status) if sys.stderr.isatty() else tell_progress(status, say)
    with shown, open_run_at(config, run, update, read_only=not keeps) as opened:
        evaluations = [
            evaluate_run(opened, seeds=range(seeds), settings=task_sets[name], name=name, only=found, write=keeps)
            for name, found in chosen.items()
        ]
    if not keeps and not dry_run:
        print_line("not saved in the journal: the settings are not those of the run", to=errors())
    is_named, (first, *_) = bool(config.evaluation.task_sets), evaluations
    if as_json:
        listed = [_evaluation_as_json(evaluation, per_task=per_task) for evaluation in evaluations]
        print_json({"number": first.number, "task_sets": listed} if is_named else listed[0])
    elif is_named:
        _print_task_sets(output(), run, evaluations, per_task=per_task)
    else:
        _print_evaluation(output(), run, first, task_sets[first.name], per_task=per_task)


def _choose_task_sets(
    evaluation: EvaluationConfig, name: str | None, split: str | None, given: Mapping[str, Any]
) -> dict[str, EvaluationConfig]:
    """The settings of the task sets to evaluate, by name, with those of the command line."""
    if name is not None and not evaluation.task_sets:
        raise ConfigError("--task-set: the run file has no [[evaluation.task_sets]]; choose a split with --split")
    if split is not None and evaluation.task_sets:
        raise ConfigError(
            "--split: the run file names task sets; choose one with --task-set, or add --unset evaluation.task_sets"
        )
    task_sets = evaluation.model_copy(update=given if split is None else {**given, "split": split}).by_name()
    if not task_sets:
        raise ConfigError("evaluation.tasks is 0, so there is nothing to evaluate; give --tasks N")
    if name is not None and name not in task_sets:
        raise ConfigError(f"--task-set: there is no task set {name!r}; {nearest(name, task_sets)}")
    return {
        each: settings.model_copy(update=given) for each, settings in task_sets.items() if name is None or each == name
    }


def _read_ids(path: Path) -> list[str]:
    try:
        ids = [line.strip() for line in read_text_file(path).splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--only {path}: cannot be read ({error}); give a text file with one task id per line"
        ) from None
    if not ids:
        raise ConfigError(f"--only {path}: no task ids; write one id per line")
    return ids


def _describe(settings: EvaluationConfig, name: str) -> str:
    return f"{settings.tasks} tasks of {describe_task_set(name, settings.split)}"


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
        for line in evaluation.pass_at:
            fewer = f"  ({line.tasks} tasks have so many rollouts)" if line.tasks < evaluation.tasks else ""
            console.print(f"{f'pass@{line.k}':<9}{format_success(line)}{fewer}")
    if evaluation.score is not None:
        console.print(f"score    {_format_score(evaluation)}")
    console.print(f"return   {evaluation.outcome:.3f}\nsteps    {evaluation.steps:.2f}")
    if evaluation.tokens is not None:
        console.print(f"tokens   {evaluation.tokens:.1f}")
    console.print(f"task_set    {evaluation.task_set[:12]}")
    _print_faults(console, evaluation)
    for title, lines in (("category", evaluation.by_tag()), ("task", evaluation.by_task() if per_task else [])):
        if lines:
            console.print()
            console.print(_make_table(title, lines, [evaluation]))


def _print_task_sets(console: Console, folder: Path, evaluations: Sequence[Evaluation], *, per_task: bool) -> None:
    """One table: each task set, below it its categories."""
    first = evaluations[0]
    console.print(
        f"[bold]{escape(str(folder))}[/] after update {first.number}, seeds {', '.join(map(str, first.by_seed))}\n"
    )
    lines = list[TasksSummary]()
    for evaluation in evaluations:
        categories = evaluation.by_tag()  # a single one is the whole
        lines += [evaluation, *(replace(each, name=f"  {each.name}") for each in categories if len(categories) > 1)]
    console.print(_make_table("task set", lines, evaluations))
    for evaluation in evaluations:
        _print_faults(console, evaluation)
        if per_task:
            console.print()
            console.print(_make_table(f"task of {evaluation.name}", evaluation.by_task(), [evaluation]))


def _print_faults(console: Console, evaluation: Evaluation) -> None:
    if evaluation.faults:
        console.print(f"[yellow]errors   {evaluation.faults} rollouts ended with an error and are not counted[/]")


def _make_table(title: str, lines: Sequence[TasksSummary], evaluations: Sequence[Evaluation]) -> Table:
    """A line per task set, category or task."""
    numbers = sorted({evaluation.shown_k for evaluation in evaluations} - {1})
    has_score = any(evaluation.score is not None for evaluation in evaluations)
    table = make_table(
        *(title, "tasks", "rollouts", *(["score"] if has_score else []), "pass@1" if numbers else "success"),
        *("95 % interval", *(f"pass@{number}" for number in numbers), "tokens", "steps"),
        bold=True,
    )
    for line in lines:
        low, high = line.interval
        by_k = {part.k: format_plain_percent(part.success) for part in line.pass_at}
        table.add_row(
            escape(line.name),
            str(line.tasks),
            str(line.rollouts),
            *(["" if line.score is None else f"{line.score:.3f}"] if has_score else []),
            format_plain_percent(line.success),
            f"{100 * low:.1f} to {100 * high:.1f}" if line.tasks > 1 else "",
            *(by_k.get(number, "") for number in numbers),
            "" if line.tokens is None else f"{line.tokens:.1f}",
            f"{line.steps:.1f}",
        )
    return table


def _format_score(line: TasksSummary) -> str:
    assert line.score_interval is not None, "a score has an interval"
    low, high = line.score_interval
    return f"{line.score:.3f} [{low:.3f}, {high:.3f}]"


def _evaluation_as_json(evaluation: Evaluation, *, per_task: bool) -> dict[str, Any]:
    names = ("number", "name", "split", "task_set", "tasks", "rollouts", "faults", "success", "interval", "outcome")
    more = ("steps", "tokens", "score", "score_interval")
    content = {name: getattr(evaluation, name) for name in (*names, *more)} | {"by_seed": dict(evaluation.by_seed)}
    content["mean_at"] = {
        "n": evaluation.rollouts_per_task,
        "success": evaluation.success,
        "interval": evaluation.interval,
    }
    content["pass_at"] = [asdict(line) for line in evaluation.pass_at]
    content["categories"] = [asdict(line) for line in evaluation.by_tag()]
    if per_task:
        content["per_task"] = [asdict(line) for line in evaluation.by_task()]
    return content
