"""`groupwise explain`: how one step gets its advantage, derived again from the file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from groupwise.cli.arguments import Format, MapEntries, Trust, argument, build_algorithm, flag, option, read_column_map
from groupwise.cli.screen import escape_recorded, file_progress, output, print_json, print_line, shorten
from groupwise.data.task_ids import rank_match
from groupwise.report import explained_step
from groupwise.report.derived_credit import RunStepExplanation, explain_run_step
from groupwise.report.explain import Explanation, GroupMember
from groupwise.store import RolloutsChunk, RolloutsFile
from groupwise.store.formats import is_run, open_rollouts
from groupwise.system.errors import ConfigError, RecordError, list_names, nearest
from groupwise.training.run_reader import RunFolder

FOR_FILES = "hgpo"
"""The default method for a file."""


def explain(
    file: Annotated[Path, argument("ROLLOUTS", "Rollouts (.jsonl, .jsonl.gz or .parquet), or a run folder.")],
    rollout: Annotated[str, option("ID", "Id of the rollout.")],
    step: Annotated[int, option("N", "Number of the step, counted from 0.", min=0)],
    task: Annotated[
        str | None,
        option("ID", "Task or group, id or its beginning (in a run TASK@UPDATE); default: the one with this rollout."),
    ] = None,
    method: Annotated[
        str | None,
        option(
            "NAME", "Method: NAME, NAME:KEY=VALUE,... or a run file; default: hgpo, for a run the method of the run."
        ),
    ] = None,
    format: Format = "auto",
    map_: MapEntries = None,
    token: Annotated[int | None, option("N", "Also explain this token of the response, counted from 0.", min=0)] = None,
    as_json: Annotated[bool, flag("--json", "Print the explanation as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Explain the advantage of one step: its groups, baseline and scale. The advantage is also computed again."""
    if not is_run(file) or map_:
        rollouts = open_rollouts(file, format=format, columns=read_column_map(map_)).hold()
        explained = _explain_in_file(rollouts, task, rollout, step, method=method or FOR_FILES, token=token)
        print_step(explained, method=method or FOR_FILES, as_json=as_json)
        return
    with RunFolder(file) as folder:
        other = None if method is None else build_algorithm(method)
        own = folder.read_algorithm() if other is None else folder.find_algorithm()
        if other is not None and own is not None and other.config() == own.config():
            other = None
        number, name, rollout_number = _find_run_rollout(folder, task, rollout)
        explained = explain_run_step(
            folder, number=number, task=name, rollout=rollout_number, step=step, token=token, other=other
        )
        trained_with = folder.describe_method()
        print_step(explained, method=str(method) if other else trained_with, as_json=as_json, trained_with=trained_with)


def _explain_in_file(
    rollouts: RolloutsFile, task: str | None, rollout: str, step: int, *, method: str, token: int | None
) -> explained_step.ExplainedStep:
    """Explain a step of recorded rollouts under a method. Only its group is read, unless the method needs others."""
    algorithm = build_algorithm(method)
    with file_progress(rollouts.size, f"reading {rollouts.path.name}") as progress:
        places = rollouts.places(progress)
        found = find_group([(str(group), str(own), str(name)) for group, own, name in places], task, rollout)
        group = next(group for group, _, _ in places if str(group) == found)
        chunk: RolloutsChunk | None = None
        only = None if explained_step.needs_all_tasks(algorithm) else group
        for number, other in enumerate(rollouts.chunks(keeps_tokens=token is not None, group=only)):
            if number and any(part.mixes_tasks for part in algorithm.parts()):
                raise ConfigError(
                    "the method compares across tasks and the file is too large to hold; use a smaller file"
                )
            chunk = other if group in other.columns["task"] else chunk
    assert chunk is not None, "the group is in one of the chunks"
    table = algorithm.estimator_table(chunk.table())
    return explained_step.explain_whole_step(
        algorithm,
        table,
        algorithm.advantage(table),
        task=group,
        rollout=rollout,
        step=step,
        token=token,
        rows=chunk.tokens,
    )


def _find_run_rollout(folder: RunFolder, task: str | None, rollout: str) -> tuple[int, str, int]:
    """Update, task and number of a rollout, given its number and `TASK@UPDATE` or the beginning of it."""
    replay = folder.journal.past_rollouts.list_replayed
    replayed = [row | {"number": number} for number in folder.updates for row in replay(number)]
    rows = {(f"{row['task']}@{row['number']}", str(row["rollout"])): row for row in [*folder.rollouts, *replayed]}
    places = [(group, row["task"], name) for (group, name), row in rows.items()]
    row = rows[find_group(places, task, rollout), rollout]
    return row["number"], row["task"], row["rollout"]


def find_group(places: Collection[tuple[str, str, str]], task: str | None, rollout: str) -> str:
    """The one group with this rollout; an error if there are none or several.

    `places` has group, task and rollout of every row of the file. `task` is the id of a group or of a task, or the
    beginning of one; the first of these that matches counts.
    """
    ranks = {pair: rank_match(task, *pair) for pair in {(group, own) for group, own, _ in places}}
    best = min((rank for rank in ranks.values() if rank is not None), default=None)
    asked = [(group, name) for group, own, name in places if best is not None and ranks[group, own] == best]
    if not asked:
        raise RecordError(f"there is no task {task!r}; {nearest(str(task), {name for pair in ranks for name in pair})}")
    groups = sorted({group for group, name in asked if name == rollout})
    if not groups:
        place = "" if task is None else f" at task {task!r}"
        raise RecordError(f"there is no rollout {rollout!r}{place}; {nearest(rollout, {name for _, name in asked})}")
    if len(groups) > 1:
        advice = "add --task" if task is None else f"{task!r} matches all: give more of the id"
        raise RecordError(f"rollout {rollout!r} exists in {len(groups)} tasks; {advice}, one of: {list_names(groups)}")
    return groups[0]


# The output of `explain` and `inspect --step`.

MAX_MEMBERS = 12
"""Printed members of a group; more are counted."""
MAX_DROPPED = 8
"""Printed dropped steps; more are counted."""


def print_step(step: explained_step.ExplainedStep, *, method: str, as_json: bool, trained_with: str = "") -> None:
    """Print how a step gets its advantage; exit with status 1 if the second derivation gives another number.

    `trained_with` is the method of the run, if the step is from a run.
    """
    if as_json:
        print_json(step.as_json())
    else:
        _print_explanation(step, method)
        if isinstance(step, RunStepExplanation):
            _print_recorded(step, trained_with)
        for name, explanation in step.channels.items():
            print_line(f"channel [bold]{escape(name)}[/]: advantage [bold]{explanation.value:+.9f}[/]", markup=True)
            output().print(_draw_tree(explanation))
            _print_not_derived(*explanation.list_not_derived())
        if step.token is not None:
            _print_token(step.token)
        if step.algorithm.pairing is not None and not step.pairs:
            print_line("the loss reads pairs, and this step is in none of them")
        for pair in step.pairs[:MAX_MEMBERS]:
            print_line(f"pair: {pair.describe()}")
        if len(step.pairs) > MAX_MEMBERS:
            print_line(f"… and {len(step.pairs) - MAX_MEMBERS} more pairs")
        _print_dropped(step)
    if not step.agrees:
        raise typer.Exit(1)


def _print_explanation(step: explained_step.ExplainedStep, method: str) -> None:
    table, explanation, gap = step.table, step.explanation, step.gap
    print_line(f"[bold]{escape(table.describe_step(step.position))}[/] under [bold]{escape(method)}[/]", markup=True)
    if table.state[step.position] >= 0:
        print_line(f"state  {shorten(str(table.state_keys[table.state[step.position]]), 110)}")
    if "action" in table.extra:
        print_line(f"action {shorten(str(table.extra['action'][step.position]), 110)}")
    output().print(_draw_tree(explanation))
    advantage, not_derived = f"advantage [bold]{explanation.value:+.9f}[/]", explanation.list_not_derived()
    if explanation.by_hand is None or gap is None:
        print_line(f"{advantage}; not derived again by hand", markup=True)
    else:
        result = "agrees" if gap <= explained_step.AGREEMENT else "[bold red]does not agree[/]"
        how = "in part" if not_derived else "from the members"
        print_line(f"{advantage}; derived again by hand {how}, it {result} (gap {gap:.1e})", markup=True)
    _print_not_derived(*not_derived)
    if explanation.own_rollout_only:
        print_line("it is compared only with steps of its own rollout: no other rollout is in its groups")


def _print_not_derived(*reasons: str) -> None:
    for reason in reasons:
        print_line(f"not derived again, taken as computed: {reason}")


def _print_recorded(step: RunStepExplanation, trained_with: str) -> None:
    """Print whether the journal has the same number, and what stateful parts remembered of the task."""
    if not step.is_what_trained:
        words = f"the run trained with [bold]{escape(trained_with)}[/], and its journal has {step.recorded:+.9f}"
        print_line(f"this is not the number of the training: {words}", markup=True)
        return
    gap = abs(step.explanation.value - step.recorded)
    same = step.agrees or gap <= 1e-9 * max(1.0, abs(step.recorded))
    words = "the same number" if same else "[bold red]another number[/]; it was computed from more than these rows"
    print_line(f"the journal has {step.recorded:+.9f}: {words}", markup=True)
    for known in step.remembered:
        print_line(f"{known.column} {known.value:.9g}: remembered by {known.path} when the update began")


def _print_token(token: explained_step.TokenExplanation) -> None:
    known = {"log-prob": token.logp, "entropy": token.entropy}
    words = ", ".join(f"{name} {value:.6g}" for name, value in known.items() if value is not None)
    about = f" ({words})" if words else ""
    print_line(f"[bold]token {token.position}[/], id {token.token}{about}: {escape(token.what)}", markup=True)
    if token.neighbours:
        output().print(_place_token(token))
    for line in token.lines:
        print_line(f"  {line}")
    for member in token.members[:MAX_MEMBERS]:
        print_line(f"  rollout {member.rollout}, step {member.step}, token {member.position}: {member.value:.6g}")
    if len(token.members) > MAX_MEMBERS:
        print_line(f"  … and {len(token.members) - MAX_MEMBERS} more tokens")
    if token.value is None:
        print_line(token.formula)
        return
    by_hand = "not derived again by hand" if token.not_derived else "that of its step"
    if token.by_hand is not None:
        by_hand = f"by hand {token.by_hand:+.9f}"
    print_line(f"{escape(token.formula)}; advantage of the token [bold]{token.value:+.9f}[/], {by_hand}", markup=True)
    if token.not_derived:
        _print_not_derived(token.not_derived)


def _place_token(token: explained_step.TokenExplanation) -> Text:
    """The token between its neighbours, as texts, or as ids without a tokenizer; it is marked by » and «."""
    pieces: list[tuple[str, str]] = []
    for near in token.neighbours:
        is_self = near.position == token.position
        text = f"{near.token}" if near.text is None else escape_recorded(near.text)
        shown = f"»{text.strip()}«" if is_self else text
        space = " " if near.text is None or (is_self and text[:1].isspace()) else ""
        pieces.append((f"{space}{shown}", "bold" if is_self else "dim"))
    first, last = token.neighbours[0], token.neighbours[-1]
    begins = "… " if first.position else ""
    return Text.assemble("  ", begins, *pieces, f"   (tokens {first.position} to {last.position})")


def _print_dropped(step: explained_step.ExplainedStep) -> None:
    """Print which filters drop the step, and which steps are dropped by their advantage."""
    of_table = (step.algorithm, step.table, step.credit)
    if dropping := explained_step.find_filters_that_drop(*of_table, step.position):
        print_line(f"it does not train: {', '.join(dropping)} drops it")
    if dropped := explained_step.find_steps_dropped_by_credit(*of_table):
        named = [f"{step.task}, rollout {step.rollout}, step {step.step} ({step.credit:+.6g})" for step in dropped]
        more = f"; and {len(dropped) - MAX_DROPPED} more" if len(dropped) > MAX_DROPPED else ""
        print_line(f"dropped by their advantage: {'; '.join(named[:MAX_DROPPED])}{more}")


def _draw_tree(explanation: Explanation) -> Tree:
    tree = Tree(f"[bold]{escape(explanation.what)}[/]: {escape(explanation.formula)}")
    for member in explanation.members[:MAX_MEMBERS]:
        tree.add(_describe_member(member))
    if len(explanation.members) > MAX_MEMBERS:
        tree.add(f"… and {len(explanation.members) - MAX_MEMBERS} more members")
    if explanation.own_rollout_only and explanation.members:
        tree.add("no other rollout is in this group: it holds only steps of this rollout")
    for weight, inner in explanation.inner:
        branch = _draw_tree(inner)
        branch.label = f"of {branch.label}" if len(explanation.inner) == 1 else f"weight {weight:.4g} x {branch.label}"
        tree.add(branch)
    return tree


def _describe_member(member: GroupMember) -> str:
    if member.rollout is None:
        return f"added by the method: {member.value:.6g}"
    if member.step is None:
        name, own = f"rollout {member.rollout}, mean of {member.num_steps} steps: {member.value:.6g}", "this rollout"
    else:
        name, own = f"rollout {member.rollout}, step {member.step}: {member.value:.6g}", "this step"
    return f"[bold green]{escape(name)} ({own})[/]" if member.is_self else escape(name)
