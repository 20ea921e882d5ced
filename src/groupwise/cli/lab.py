"""`groupwise lab`: how far the credit of each recipe is from the true advantages of a policy's steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli.arguments import Set, Trust, Unset, load_run_file, need_trainer
from groupwise.cli.screen import errors, make_table, output, print_json, print_line
from groupwise.parts.part import check_may_open
from groupwise.system.errors import FileError
from groupwise.system.json_text import to_json

if TYPE_CHECKING:
    from groupwise.training.config.run_config import RunConfig


def lab(
    file: Annotated[Path, typer.Argument(metavar="RUN", help="A run file (TOML), or the folder of a run.")],
    recipe: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Measure this recipe; may repeat; all otherwise.")
    ] = None,
    skill: Annotated[
        float | None,
        typer.Option(help="Play a table of this skill in place of the model; worlds that can be listed, exact truth."),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of every update.")] = 4,
    attempts: Annotated[int, typer.Option(min=2, help="Attempts of a group.")] = 8,
    updates: Annotated[int, typer.Option(min=2, help="How often all groups are drawn.")] = 40,
    situations: Annotated[int, typer.Option(min=1, help="Situations to find the truth of, by continuations.")] = 40,
    continuations: Annotated[int, typer.Option(min=2, help="Continuations of each kind at a decision point.")] = 128,
    gamma: Annotated[float, typer.Option(min=0, max=1, help="What a reward one step later counts in the truth.")] = 1.0,
    set_: Set = None,
    unset: Unset = None,
    write: Annotated[Path | None, typer.Option(help="Write the result as JSON here too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Hold the credit of recipes against the truth: groups are drawn again and again, and nothing learns.

    The truth of a step is what its action changes in what the policy earns: by continuations from forks of the world,
    or exactly where the policy is a table.
    """
    need_trainer()
    if write is not None:  # refused before hours of work are lost on it
        folder = write.absolute().parent
        if not folder.is_dir():
            raise FileError(f"--write {write}: there is no folder {folder}; make it, or choose another")
        if write.is_dir() or not os.access(write if write.exists() else folder, os.W_OK):
            raise FileError(f"--write {write}: a file cannot be written there; choose another")
    config = load_run_file(file, set_, unset)
    check_may_open(config.env)
    counts = {"tasks": tasks, "attempts": attempts, "updates": updates, "gamma": gamma, "seed": config.seed}
    chosen = list(recipe) if recipe else None
    if skill is not None:
        result = _study_table(config, chosen, {**counts, "skill": skill})
    else:
        more = {"situations": situations, "continuations": continuations}
        result = _study_model(config, file, chosen, {**counts, **more})
    if write is not None:
        write.write_text(to_json(result), encoding="utf-8")
    if as_json:
        print_json(result)
    else:
        _print_result(result)


def _study_table(config: RunConfig, recipes: list[str] | None, counts: Mapping[str, Any]) -> dict[str, Any]:
    """A table plays, in the run's environment and with the run's memory."""
    from groupwise.lab.study import ListedCondition, list_algorithms, record_condition, study_recording
    from groupwise.lab.tabular import read_window

    window = read_window(config.rollout.memory, config.env.max_steps)
    key: Any = getattr(config.env, "key", "situation")
    recording, tools = record_condition(ListedCondition(env=config.env, sees=window, key=key, **counts))
    algorithms = list_algorithms(recipes)
    return study_recording(recording, algorithms, tools=tools, seed=config.seed, tell=_tell)


def _study_model(config: RunConfig, file: Path, recipes: list[str] | None, counts: Mapping[str, Any]) -> dict[str, Any]:
    """The run's model plays: that of the last checkpoint of a folder, or the one that a run file begins with."""
    from groupwise.lab.played_recording import PlayedCondition
    from groupwise.lab.study import list_algorithms, record_run, study_recording
    from groupwise.training.checkpoints import open_run_at
    from groupwise.training.open_run import open_run

    algorithms = list_algorithms(recipes)
    with TemporaryDirectory() as scratch:
        folder, untracked = Path(scratch) / "run", config.model_copy(update={"trackers": ()})
        with open_run_at(config, file, read_only=True) if file.is_dir() else open_run(untracked, folder) as run:
            recording, tools = record_run(run, PlayedCondition(**counts))
            return study_recording(recording, algorithms, tools=tools, seed=config.seed, tell=_tell)


def _tell(name: str) -> None:
    if errors().is_terminal:
        errors().print(f"measuring {name}", style="dim")


def _print_result(result: Mapping[str, Any]) -> None:
    recording = result["recording"]
    headings = ("recipe", "level", "error", "bias", "misdirection", "noise", "sign", "rank")
    table = make_table(*headings, align="llr")
    measured = {name: line for name, line in result["recipes"].items() if "error" in line}
    for name, line in sorted(measured.items(), key=lambda item: item[1]["error"]["value"]):
        numbers = (_format_number(line[what]) for what in headings[2:])
        table.add_row(name, line["level"], *numbers)
    output().print(table)
    for name, line in result["recipes"].items():
        if "same_as" in line:
            print_line(f"{name}: the same credit as {line['same_as']}")
        elif "not_measured" in line:
            print_line(f"{name}: not measured ({line['not_measured']})")
    print_line(
        f"{recording['attempts']:,} attempts, {recording['success']:.1%} solved; the truth of "
        f"{recording['steps_with_truth']:,} of {recording['steps']:,} steps is known, of size "
        f"{recording['truth_size']:.3f} with a standard error of {recording['truth_error']:.3f}",
    )
    if recording["attempts_left_out"] or recording["pairs_left_out"]:
        print_line(
            f"left out for faults: {recording['attempts_left_out']:,} attempts, {recording['pairs_left_out']:,} pairs "
            "of continuations",
        )


def _format_number(measured: Mapping[str, float | None]) -> str:
    if measured["value"] is None or measured["low"] is None or measured["high"] is None:
        return "not known"
    half = (measured["high"] - measured["low"]) / 2
    return f"{measured['value']:.3f} ± {half:.3f}"
