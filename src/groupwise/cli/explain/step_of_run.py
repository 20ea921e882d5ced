"""How a step of a run came by its credit: one update at a time, with all that took part in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

import typer
from rich.markup import escape

from groupwise.cli.arguments.algorithms import algorithm_named
from groupwise.cli.explain.training import more_as_json, print_dropped, print_token
from groupwise.cli.explain.views import channels_as_json, print_channels, print_explanation
from groupwise.cli.inspect import views
from groupwise.cli.terminal.screen import output
from groupwise.core.errors import RecordError, listed, nearest
from groupwise.reports.run.explain_step import RunStepExplanation, explain_run_step
from groupwise.reports.run.method_name import find_method_name
from groupwise.reports.run.run_folder import RunFolder


def explain_in_run(
    path: Path, task: str | None, attempt: str, step: int, *, recipe: str | None, token: int | None, as_json: bool
) -> None:
    """Explain a step under what trained it, with the journal's own number; or under another recipe, and say so."""
    with RunFolder(path) as folder:
        other = None if recipe is None else algorithm_named(recipe)
        own = folder.read_algorithm() if other is None else folder.find_algorithm()
        if other is not None and own is not None and other.config() == own.config():
            other = None
        number, name, attempt_number = _find_attempt(folder, task, attempt)
        found = explain_run_step(
            folder, number=number, task=name, attempt=attempt_number, step=step, token=token, other=other
        )
        print_why(folder, found, as_json=as_json, other="" if other is None else str(recipe))


def print_why(folder: RunFolder, found: RunStepExplanation, *, as_json: bool, other: str = "") -> None:
    """Print why a step of a run has its credit; `other` names the recipe where that is not the run's own."""
    derived = found.derived
    if as_json:
        own = {"recorded": found.recorded, "largest_gap": found.gap, "remembered": found.remembered}
        told = {"is_what_trained": found.is_what_trained}
        more = more_as_json(derived.algorithm, derived.table, derived.credit, found.token)
        views.print_json(asdict(found.explanation) | own | told | channels_as_json(found.channels) | more)
    else:
        recipe = other or describe_method(folder)
        print_explanation(derived.table, found.explanation, found.gap, recipe=recipe, position=found.position)
        if found.is_what_trained:
            views.recorded(found)
        else:
            output().print(
                f"this is not what trained: the run trained under [bold]{escape(describe_method(folder))}[/], and its "
                f"journal holds {found.recorded:+.9f}",
                highlight=False,
                soft_wrap=True,
            )
        print_channels(found.channels)
        print_token(found.token)
        print_dropped(derived.algorithm, derived.table, derived.credit, found.position)
    if not found.agrees:
        raise typer.Exit(1)


def describe_method(folder: RunFolder) -> str:
    """What a run's algorithm is called, with what there is to add."""
    name, own = find_method_name(folder)
    return f"{name} ({own})" if own else name


def check_one_found(
    task: str | None, attempt: str, *, scopes: Collection[str], names: Collection[str], several: Collection[str]
) -> None:
    """Refuse an attempt that does not exist, or exists more than once.

    Args:
        task: the scope that was asked for; None = any.
        attempt: the attempt that was asked for.
        scopes: every scope there is.
        names: the attempts of the scopes that were asked for.
        several: the scopes that hold the attempt.
    """
    if task is not None and task not in scopes:
        raise RecordError(f"there is no task {task!r}; {nearest(task, scopes)}")
    if not several:
        place = "" if task is None else f" at task {task!r}"
        raise RecordError(f"there is no attempt {attempt!r}{place}; {nearest(attempt, names)}")
    if len(several) > 1:
        raise RecordError(f"attempt {attempt!r} exists in {len(several)} tasks; add --task, one of: {listed(several)}")


def _find_attempt(folder: RunFolder, task: str | None, attempt: str) -> tuple[int, str, int]:
    """The update, the task and the number of an attempt, by `TASK@UPDATE`, or by its number where there is but one."""
    past_attempts = folder.journal.past_attempts
    recalled = [row | {"number": number} for number in folder.updates for row in past_attempts.list_recalled(number)]
    known = {
        (f"{row['task']}@{row['number']}", str(row["attempt"])): (row["number"], row["task"], row["attempt"])
        for row in [*folder.attempts, *recalled]
    }
    asked = {pair: found for pair, found in known.items() if task in (None, pair[0])}
    holders = {scope: found for (scope, name), found in asked.items() if name == attempt}
    check_one_found(
        task, attempt, scopes={scope for scope, _ in known}, names={name for _, name in asked}, several=holders.keys()
    )
    return next(iter(holders.values()))
