"""`groupwise inspect`: a run update by update, group by group, step by step; or two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from groupwise.cli.arguments.trust import Trust
from groupwise.cli.explain.step_of_run import describe_method, print_why
from groupwise.cli.inspect import views
from groupwise.cli.inspect.rescue import joined
from groupwise.cli.terminal.screen import errors
from groupwise.core.errors import ConfigError
from groupwise.reports.run.differences import compare_runs
from groupwise.reports.run.explain_step import explain_run_step
from groupwise.reports.run.goals import GoalLookup
from groupwise.reports.run.overview import read_update_lines
from groupwise.reports.run.read_groups import read_groups
from groupwise.reports.run.rescue import rescue_of
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.update_groups import PlayedGroup, describe_underived, find_attempt, find_task
from groupwise.reports.run.verdict import list_verdicts


def inspect(
    run: Annotated[Path | None, typer.Argument(help="Folder of a run.")] = None,
    update: Annotated[int | None, typer.Option(help="Show the groups of this update.", min=0)] = None,
    task: Annotated[
        str | None, typer.Option(help="Show an attempt at this task; the beginning of its id will do.")
    ] = None,
    attempt: Annotated[int | None, typer.Option(help="Which attempt; default: the best.", min=0)] = None,
    why: Annotated[int | None, typer.Option(metavar="STEP", help="Explain the credit of this step.", min=0)] = None,
    token: Annotated[
        int | None, typer.Option(help="Explain the credit of this token of that step too, from 0.", min=0)
    ] = None,
    diff: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="A B", help="Compare two runs: settings, metrics, success.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is shown as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Look into a run: its updates, an update's groups, an attempt as a dialogue with credit per step, and why."""
    if diff is not None:
        if run is not None or any(option is not None for option in (update, task, attempt, why, token)):
            raise ConfigError("--diff takes two folders and nothing else; write `groupwise inspect --diff A B`")
        _compare(*diff, as_json=as_json)
        return
    if run is None:
        raise ConfigError("no run is given; write `groupwise inspect RUN`, or `groupwise inspect --diff A B`")
    _check(update, task, attempt, why, token)
    with RunFolder(run) as folder:
        if update is None:
            _overview(folder, as_json=as_json)
            return
        for reason in folder.list_untrusted(with_env=task is not None):  # an attempt is shown with its goal
            errors().print(f"[dim]{escape(reason)}[/]", highlight=False, soft_wrap=True)
        groups = read_groups(folder, update)
        if task is None:
            _groups(folder, update, groups, as_json=as_json)
            return
        where = f"{run}, update {update}"
        name = find_task((group.task for group in groups), task, where=where)
        group = next(group for group in groups if group.task == name)
        number = group.best().attempt if attempt is None else find_attempt(group, attempt, where=where).attempt
        if why is None:
            _attempt(folder, update, group, number, as_json=as_json)
        else:
            found = explain_run_step(folder, number=update, task=group.task, attempt=number, step=why, token=token)
            print_why(folder, found, as_json=as_json)


def _check(update: int | None, task: str | None, attempt: int | None, why: int | None, token: int | None) -> None:
    """An option that says more needs the one before it."""
    if task is not None and update is None:
        raise ConfigError("--task needs an update; add --update N (`groupwise inspect RUN` lists them)")
    if attempt is not None and task is None:
        raise ConfigError("--attempt needs a task; add --task ID (`groupwise inspect RUN --update N` lists them)")
    if why is not None and attempt is None:
        raise ConfigError("--why needs an attempt; add --attempt NUMBER (`--update N --task ID` lists them)")
    if token is not None and why is None:
        raise ConfigError("--token needs a step; add --why STEP (`--update N --task ID --attempt M` lists them)")


def _overview(folder: RunFolder, *, as_json: bool) -> None:
    lines, verdicts = read_update_lines(folder), list_verdicts(folder)
    if as_json:
        views.print_json({"panels": folder.panels, "updates": lines, "evaluations": verdicts})
    else:
        views.overview(folder, describe_method(folder), lines, verdicts)


def _groups(folder: RunFolder, number: int, groups: list[PlayedGroup], *, as_json: bool) -> None:
    if as_json:
        summaries = [views.group_summary(group) for group in groups]
        told = {"faults": folder.journal.faults(number), "underived": describe_underived(groups)}
        views.print_json({"update": number, "groups": summaries} | told)
    else:
        views.groups(folder, number, groups)


def _attempt(folder: RunFolder, number: int, group: PlayedGroup, attempt: int, *, as_json: bool) -> None:
    played = find_attempt(group, attempt, where="")
    goal = GoalLookup(folder.find_env()).find(group.task)
    if as_json:
        found = {"update": number, "goal": goal.text, "tags": goal.tags, "attempt": played}
        more = {"rescue": rescue_of(group), "joined": joined(group), "underived": group.underived}
        views.print_json(found | more)
    else:
        views.attempt(number, group, played, goal)


def _compare(first: Path, second: Path, *, as_json: bool) -> None:
    with RunFolder(first) as one, RunFolder(second) as other:
        found = compare_runs(one, other)
    if as_json:
        views.print_json(found)
    else:
        views.differences(found, str(first), str(second))
