"""How a step of a run came by its credit: one update at a time, with all that took part in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

import typer
from rich.markup import escape

from groupwise.cli.arguments.algorithms import build_algorithm
from groupwise.cli.explain.views import (
    channels_as_json,
    extras_as_json,
    print_channels,
    print_dropped,
    print_explanation,
    print_pairs,
    print_recorded,
    print_token,
)
from groupwise.cli.terminal.screen import output, print_finite_json
from groupwise.core.errors import RecordError, list_names, nearest
from groupwise.core.task_ids import rank_match
from groupwise.reports.run.explain_step import RunStepExplanation, explain_run_step
from groupwise.reports.run.run_folder import RunFolder


def explain_in_run(
    path: Path, task: str | None, attempt: str, step: int, *, recipe: str | None, token: int | None, as_json: bool
) -> None:
    """Explain a step under what trained it, with the journal's own number; or under another recipe, and say so."""
    with RunFolder(path) as folder:
        other = None if recipe is None else build_algorithm(recipe)
        own = folder.read_algorithm() if other is None else folder.find_algorithm()
        if other is not None and own is not None and other.config() == own.config():
            other = None
        number, name, attempt_number = _find_attempt(folder, task, attempt)
        explained = explain_run_step(
            folder, number=number, task=name, attempt=attempt_number, step=step, token=token, other=other
        )
        print_run_step(folder, explained, as_json=as_json, other="" if other is None else str(recipe))


def print_run_step(folder: RunFolder, step: RunStepExplanation, *, as_json: bool, other: str = "") -> None:
    """Print why a step of a run has its credit; `other` names the recipe where that is not the run's own."""
    derived = step.derived
    if as_json:
        own = {"recorded": step.recorded, "largest_gap": step.gap, "remembered": step.remembered}
        trained = {"is_what_trained": step.is_what_trained}
        more = extras_as_json(derived.algorithm, derived.table, derived.credit, step.token, step.pairs)
        print_finite_json(asdict(step.explanation) | own | trained | channels_as_json(step.channels) | more)
    else:
        recipe = other or folder.describe_method()
        print_explanation(derived.table, step.explanation, step.gap, recipe=recipe, position=step.position)
        if step.is_what_trained:
            print_recorded(step)
        else:
            output().print(
                f"this is not what trained: the run trained under [bold]{escape(folder.describe_method())}[/], and its "
                f"journal holds {step.recorded:+.9f}",
                highlight=False,
                soft_wrap=True,
            )
        print_channels(step.channels)
        print_token(step.token)
        print_pairs(derived.algorithm, step.pairs)
        print_dropped(derived.algorithm, derived.table, derived.credit, step.position)
    if not step.agrees:
        raise typer.Exit(1)


def check_unique_attempt(
    task: str | None, attempt: str, *, scopes: Collection[str], names: Collection[str], several: Collection[str]
) -> None:
    """Refuse an attempt that does not exist, or exists more than once.

    Args:
        task: what was asked for: a scope's id, or the beginning of it; None = any.
        attempt: the attempt that was asked for.
        scopes: every scope there is.
        names: the attempts of the scopes that are meant; empty = none is.
        several: the scopes that hold the attempt.
    """
    if task is not None and not names:
        raise RecordError(f"there is no task {task!r}; {nearest(task, scopes)}")
    if not several:
        place = "" if task is None else f" at task {task!r}"
        raise RecordError(f"there is no attempt {attempt!r}{place}; {nearest(attempt, names)}")
    if len(several) > 1:
        advice = "add --task" if task is None else f"{task!r} fits them all: give more of the id"
        raise RecordError(
            f"attempt {attempt!r} exists in {len(several)} tasks; {advice}, one of: {list_names(sorted(several))}"
        )


def _find_attempt(folder: RunFolder, task: str | None, attempt: str) -> tuple[int, str, int]:
    """The update, the task and the number of an attempt, by `TASK@UPDATE` or the beginning of it, or by its number."""
    past_attempts = folder.journal.past_attempts
    recalled = [row | {"number": number} for number in folder.updates for row in past_attempts.list_recalled(number)]
    known = {
        (f"{row['task']}@{row['number']}", str(row["attempt"])): (row["number"], row["task"], row["attempt"])
        for row in [*folder.attempts, *recalled]
    }
    ranks = {scope: rank_match(task, scope, place[1]) for (scope, _), place in known.items()}
    best = min((rank for rank in ranks.values() if rank is not None), default=0)
    asked = {pair: place for pair, place in known.items() if ranks[pair[0]] == best}
    holders = {scope: place for (scope, name), place in asked.items() if name == attempt}
    check_unique_attempt(task, attempt, scopes=ranks, names={name for _, name in asked}, several=holders)
    return next(iter(holders.values()))
