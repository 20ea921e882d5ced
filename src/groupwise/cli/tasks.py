"""`groupwise tasks`: show, list, save or check the task sets of an environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from groupwise.cli.arguments import EnvFields, Trust, argument, flag, option, set_rights
from groupwise.cli.screen import output, print_json, print_line
from groupwise.data.records import Task
from groupwise.envs.kit.task_set import SPLITS, TaskSetFile, check_evaluated, choose_split, task_set_hash, task_sets_of
from groupwise.parts.part import Part, Slot, check_may_open, find_part_class, name_of
from groupwise.store.journal import Journal
from groupwise.store.run_folder import CONFIG, JOURNAL
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_file import parse_settings, read_run_file

SHOWN_DIGITS = 16
"""Printed digits of a hash; files and JSON have all 64."""


def tasks(
    context: typer.Context,
    what: Annotated[
        str, argument("ENV|RUN", "Kind of an environment, MODULE:CLASS, run file, run folder or task-set file.")
    ],
    settings: EnvFields = None,
    out: Annotated[Path | None, option("FILE", "Save the task sets to this JSON file.")] = None,
    check: Annotated[Path | None, option("FILE", "Compare with a saved file; fail if tasks changed.")] = None,
    split: Annotated[str | None, option("NAME", "List the tasks of this task set, such as test.")] = None,
    as_json: Annotated[bool, flag("--json", "Print as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Show, save or check the task sets of an environment. The hash of a task set names its tasks."""
    if not _is_file(what):  # typed by the user, not read from a file
        set_rights(context, may_run=True)
    part, task_set_file = _open_env(what, settings or [])
    task_sets = task_sets_of(part)
    if task_set_file is not None:
        task_set_file.check(part, name=what)
    if check is not None:
        TaskSetFile.read(check).check(part, name=str(check))
    evaluated = _check_journal(Path(what), part) if Path(what).is_dir() else 0
    if out is not None:
        TaskSetFile.of(part).write(out)
    if split is not None:
        tasks = choose_split(task_sets, split)
        if as_json:
            print_json([{"id": task.id, "tags": task.tags, "payload": task.payload} for task in tasks])
        for task in () if as_json else tasks:
            print_line(" ".join((task.id, *task.tags)))
    elif as_json:
        summaries = {
            name: {"tasks": len(tasks), "hash": task_set_hash(tasks), "categories": _count_categories(tasks)}
            for name, tasks in ((name, task_sets[name]) for name in SPLITS)
        }
        print_json({"env": part.config(), "task_sets": summaries})
    else:
        _print_task_sets(
            name_of(part), task_sets, [str(file) for file in (task_set_file and what, check) if file], out, evaluated
        )


def _open_env(what: str, settings: Sequence[str]) -> tuple[Part, TaskSetFile | None]:
    """The environment, and the task-set file if `what` is one."""
    path = Path(what)
    if path.suffix == ".json":
        if settings:
            raise ConfigError(f"{what}: --set cannot change a file of task sets; remove --set")
        task_set_file = TaskSetFile.read(path)
        part = task_set_file.part()
        check_may_open(part)  # the file may come from someone else
        return part, task_set_file
    if _is_file(what):
        part = _read_run_env(path / CONFIG if path.is_dir() else path, settings)
        check_may_open(part)
        return part, None
    if "/" in what:
        raise ConfigError(f"{what}: no such run or file; give an existing one, or the kind of an environment")
    return find_part_class("env", what)(**parse_settings(settings, option="--set ", prefix="env.")), None


def _is_file(what: str) -> bool:
    return Path(what).suffix in (".json", ".toml") or Path(what).is_dir()


def _read_run_env(path: Path, settings: Sequence[str]) -> Part:
    """The environment of a run file. Its other sections are not read, because they need the trainer."""
    file = read_run_file(path)
    section = file.content.get("env")
    if section is None and "agent" in file.content:
        raise ConfigError(f"{path}: the tasks of an agent are the rows of its file, agent.tasks.path; read them there")
    if section is None:
        raise ConfigError(f"{path}: section [env] is missing; give it a `kind`")
    if not isinstance(section, str | dict):
        raise ConfigError(f"{path}: `env` is a {type(section).__name__}; give the section [env] a `kind`")
    try:
        fields = {"kind": section} if isinstance(section, str) else section
        return Slot("env").fill({**fields, **parse_settings(settings, option="--set ", prefix="env.")})
    except ConfigError as error:
        raise ConfigError(f"{file.name_place(('env', *error.key))}: {error.below('env')}") from None


def _check_journal(folder: Path, part: Part) -> int:
    """Check that a run was evaluated on its environment's task sets. Returns how many of them were evaluated."""
    if not (folder / JOURNAL).is_file():
        return 0
    tasks: dict[tuple[str, str], set[str]] = {}
    with Journal(folder / JOURNAL, read_only=True) as journal:
        for row in journal.evaluations():
            tasks.setdefault((row.split, row.task_set), set()).add(row.task)
    for (split, digest), played in tasks.items():
        check_evaluated(part, split=split, tasks=played, digest=digest)
    return len(tasks)


def _count_categories(tasks: Sequence[Task]) -> dict[str, int]:
    return dict(sorted(Counter(tag for task in tasks for tag in task.tags).items()))


def _print_task_sets(
    name: str, task_sets: dict[str, tuple[Task, ...]], checked: Sequence[str], out: Path | None, evaluated: int
) -> None:
    console = output()
    console.print(f"[bold]{escape(name)}[/]: {len(task_sets)} task sets, no task in two of them", soft_wrap=True)
    for split, tasks in task_sets.items():
        categories = ", ".join(f"{tag} {count:,}" for tag, count in _count_categories(tasks).items())
        shown = f" {split:<10} {len(tasks):>7,} tasks  {task_set_hash(tasks)[:SHOWN_DIGITS]}"
        console.print(f"{shown}  [dim]{escape(categories)}[/]" if categories else shown)
    for file in checked:
        console.print(f" [green]ok[/] equal to {escape(file)}")
    if evaluated:
        console.print(" [green]ok[/] every task that the run was evaluated on is in its task set")
    if out is not None:
        console.print(f" written to {escape(str(out))}")
