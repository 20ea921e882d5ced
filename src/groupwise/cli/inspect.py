"""`groupwise inspect`: a run update by update, group by group, step by step; or two runs side by side."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from groupwise.cli import inspect_views as views
from groupwise.cli.arguments import Trust
from groupwise.cli.attributed_tokens import print_recorded_prompt
from groupwise.cli.explain import print_step
from groupwise.cli.inspect_views import attempt_as_json, list_joined
from groupwise.cli.screen import errors, output, print_finite_json
from groupwise.data.task_ids import find_task
from groupwise.report.derived_credit import explain_run_step
from groupwise.report.groups import PlayedGroup, describe_underived, find_attempt, read_groups
from groupwise.report.overview import list_verdicts, read_update_lines
from groupwise.report.prompts import GoalLookup, TokenTexts, read_prompt
from groupwise.report.rescue import rescue_of
from groupwise.system.errors import ConfigError
from groupwise.training.differences import compare_runs
from groupwise.training.run_reader import RunFolder


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
    prompt: Annotated[
        int | None, typer.Option(metavar="STEP", help="Show what the model saw at this step, by origin.", min=0)
    ] = None,
    diff: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="A B", help="Compare two runs: settings, metrics, success.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is shown as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Look into a run: updates, an update's groups, an attempt as a dialogue with credit by step and token, and why."""
    if diff is not None:
        if run is not None or any(option is not None for option in (update, task, attempt, why, token, prompt)):
            raise ConfigError("--diff takes two folders and nothing else; write `groupwise inspect --diff A B`")
        _show_differences(*diff, as_json=as_json)
        return
    if run is None:
        raise ConfigError("no run is given; write `groupwise inspect RUN`, or `groupwise inspect --diff A B`")
    _check_options(update, task, attempt, why, token, prompt)
    with RunFolder(run) as folder:
        if update is None:
            _show_overview(folder, as_json=as_json)
            return
        for reason in folder.list_untrusted(with_env=task is not None):  # an attempt is shown with its goal
            errors().print(f"[dim]{escape(reason)}[/]", highlight=False, soft_wrap=True)
        groups = read_groups(folder, update)
        if task is None:
            _show_groups(folder, update, groups, as_json=as_json)
            return
        where = f"{run}, update {update}"
        name = find_task((group.task for group in groups), task, where=where)
        group = next(group for group in groups if group.task == name)
        number = group.best().attempt if attempt is None else find_attempt(group, attempt, where=where).attempt
        if prompt is not None:
            _show_prompt(folder, update, group.task, number, prompt, as_json=as_json)
        elif why is None:
            _show_attempt(folder, update, group, number, as_json=as_json)
        else:
            explained = explain_run_step(folder, number=update, task=group.task, attempt=number, step=why, token=token)
            method = folder.describe_method()
            print_step(explained, recipe=method, as_json=as_json, method=method)


def _check_options(
    update: int | None, task: str | None, attempt: int | None, why: int | None, token: int | None, prompt: int | None
) -> None:
    """An option that says more needs the one before it."""
    if task is not None and update is None:
        raise ConfigError("--task needs an update; add --update N (`groupwise inspect RUN` lists them)")
    if attempt is not None and task is None:
        raise ConfigError("--attempt needs a task; add --task ID (`groupwise inspect RUN --update N` lists them)")
    if why is not None and attempt is None:
        raise ConfigError("--why needs an attempt; add --attempt NUMBER (`--update N --task ID` lists them)")
    if token is not None and why is None:
        raise ConfigError("--token needs a step; add --why STEP (`--update N --task ID --attempt M` lists them)")

    if prompt is not None and (attempt is None or why is not None):
        raise ConfigError(
            "--prompt needs an attempt, and goes without --why; add --attempt NUMBER, and ask one at a time"
        )


def _show_overview(folder: RunFolder, *, as_json: bool) -> None:
    lines, verdicts = read_update_lines(folder), list_verdicts(folder)
    if as_json:
        events = {"alarms": folder.journal.alarms(), "changes": folder.journal.changes()}
        print_finite_json({"panels": folder.panels, "updates": lines, "evaluations": verdicts} | events)
    else:
        views.print_overview(folder, folder.describe_method(), lines, verdicts)


def _show_groups(folder: RunFolder, number: int, groups: list[PlayedGroup], *, as_json: bool) -> None:
    if as_json:
        summaries = [views.summarise_group(group) for group in groups]
        more = {"faults": folder.journal.faults(number), "underived": describe_underived(groups)}
        print_finite_json({"update": number, "groups": summaries} | more)
    else:
        views.print_groups(folder, number, groups)


def _show_attempt(folder: RunFolder, number: int, group: PlayedGroup, attempt: int, *, as_json: bool) -> None:
    played = find_attempt(group, attempt, where="")
    goal, texts = GoalLookup(folder.find_env()).find(group.task), TokenTexts(folder.path)
    if as_json:
        data = {"update": number, "goal": goal.text, "tags": goal.tags} | attempt_as_json(group, played, texts)
        more = {"rescue": rescue_of(group), "joined": list_joined(group), "underived": group.underived}
        print_finite_json(data | more)
    else:
        views.print_attempt(number, group, played, goal, texts)


def _show_prompt(folder: RunFolder, number: int, task: str, attempt: int, step: int, *, as_json: bool) -> None:
    recorded = read_prompt(folder, number=number, task=task, attempt=attempt, step=step)
    if as_json:
        place = {"update": number, "task": task, "attempt": attempt, "step": step}
        print_finite_json(place | {"prompt": "".join(recorded.prompt_texts)} | asdict(recorded))
    else:
        print_recorded_prompt(output(), recorded, title=f"update {number}, task {task}, attempt {attempt}, step {step}")


def _show_differences(first: Path, second: Path, *, as_json: bool) -> None:
    with RunFolder(first) as first_run, RunFolder(second) as second_run:
        differences = compare_runs(first_run, second_run)
    if as_json:
        print_finite_json(differences)
    else:
        views.print_differences(differences, str(first), str(second))
