"""`groupwise lab`: how far the advantages of each method are from the true advantages of a policy's steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from groupwise.cli.arguments import Set, Trust, Unset, argument, flag, load_run_file, need_trainer, option
from groupwise.cli.screen import errors, make_table, output, print_json, print_line
from groupwise.parts.part import check_may_open
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.json_text import to_json

if TYPE_CHECKING:
    from groupwise.training.config.run_config import RunConfig


def lab(
    file: Annotated[Path, argument("RUN", "Run file (TOML) or run folder.")],
    method: Annotated[
        list[str] | None, option("NAME", "Measure this method. Repeatable; default: all methods.")
    ] = None,
    skill: Annotated[
        float | None,
        option("NUMBER", "Use a tabular policy of this skill instead of the model (tabular environments only)."),
    ] = None,
    tasks: Annotated[int, option("N", "Tasks per update.", min=1)] = 4,
    rollouts: Annotated[int, option("N", "Rollouts per group.", min=2)] = 8,
    updates: Annotated[int, option("N", "Number of updates to sample.", min=2)] = 40,
    situations: Annotated[int, option("N", "Situations whose true advantages are estimated.", min=1)] = 40,
    continuations: Annotated[int, option("N", "Continuations of each kind per situation.", min=2)] = 128,
    gamma: Annotated[float, option("NUMBER", "Discount factor of the true advantages.", min=0, max=1)] = 1.0,
    set_: Set = None,
    unset: Unset = None,
    out: Annotated[Path | None, option("FILE", "Also write the result to this JSON file.")] = None,
    as_json: Annotated[bool, flag("--json", "Print the result as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Compare the advantages of methods with the true advantages. Nothing is trained.

    A true advantage is the change of the expected return by an action. It is estimated by continuations from forks of
    the environment. With --skill, it is exact.
    """
    need_trainer()
    if out is not None:  # fail now, not after hours of work
        folder = out.absolute().parent
        if not folder.is_dir():
            raise FileError(f"--out {out}: there is no folder {folder}; create it, or choose another one")
        if out.is_dir() or not os.access(out if out.exists() else folder, os.W_OK):
            raise FileError(f"--out {out}: no permission to write this file; choose another one")
    config = load_run_file(file, set_, unset)
    if config.agent is not None:
        raise ConfigError(f"{file}: agent: the lab continues rollouts from copies, and an agent cannot be copied")
    check_may_open(config.env)
    counts = {"tasks": tasks, "rollouts": rollouts, "updates": updates, "gamma": gamma, "seed": config.seed}
    chosen = list(method) if method else None
    if skill is not None:
        result = _study_table(config, chosen, {**counts, "skill": skill})
    else:
        more = {"situations": situations, "continuations": continuations}
        result = _study_model(config, file, chosen, {**counts, **more})
    if out is not None:
        out.write_text(to_json(result), encoding="utf-8")
    if as_json:
        print_json(result)
    else:
        _print_result(result)


def _study_table(config: RunConfig, methods: list[str] | None, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Study a tabular policy in the run's environment, with the run's history in the prompt."""
    from groupwise.lab.study import ListedCondition, list_algorithms, record_condition, study_recording
    from groupwise.lab.tabular import read_window

    window = read_window(config.rollout.history, config.env.max_steps)
    key: Any = getattr(config.env, "key", "situation")
    recording, tools = record_condition(ListedCondition(env=config.env, sees=window, key=key, **counts))
    algorithms = list_algorithms(methods)
    return study_recording(recording, algorithms, tools=tools, seed=config.seed, tell=_tell)


def _study_model(config: RunConfig, file: Path, methods: list[str] | None, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Study the run's model: the last checkpoint of a folder, or the initial model of a run file."""
    from groupwise.lab.played_recording import PlayedCondition
    from groupwise.lab.study import list_algorithms, record_run, study_recording
    from groupwise.training.checkpoints import open_run_at
    from groupwise.training.open_run import open_run

    algorithms = list_algorithms(methods)
    with TemporaryDirectory() as scratch:
        own, untracked = Path(scratch) / "run", config.model_copy(update={"trackers": ()})
        with open_run_at(config, file, read_only=True) if file.is_dir() else open_run(untracked, own) as run:
            recording, tools = record_run(run, PlayedCondition(**counts))
            return study_recording(recording, algorithms, tools=tools, seed=config.seed, tell=_tell)


def _tell(name: str) -> None:
    if errors().is_terminal:
        errors().print(f"measuring {name}", style="dim")


def _print_result(result: Mapping[str, Any]) -> None:
    recording = result["recording"]
    headings = ("method", "level", "error", "bias", "misdirection", "noise", "sign", "rank")
    table = make_table(*headings, align="llr")
    measured = {name: line for name, line in result["methods"].items() if "error" in line}
    for name, line in sorted(measured.items(), key=lambda item: item[1]["error"]["value"]):
        numbers = (_format_number(line[what]) for what in headings[2:])
        table.add_row(name, line["level"], *numbers)
    output().print(table)
    for name, line in result["methods"].items():
        if "same_as" in line:
            print_line(f"{name}: the same advantages as {line['same_as']}")
        elif "not_measured" in line:
            print_line(f"{name}: not measured ({line['not_measured']})")
    print_line(
        f"{recording['rollouts']:,} rollouts, {recording['success']:.1%} solved. The true advantage of "
        f"{recording['steps_with_truth']:,} of {recording['steps']:,} steps is known: root mean square "
        f"{recording['truth_size']:.3f}, standard error {recording['truth_error']:.3f}"
    )
    if recording["rollouts_left_out"] or recording["pairs_left_out"]:
        print_line(
            f"left out because of errors: {recording['rollouts_left_out']:,} rollouts, "
            f"{recording['pairs_left_out']:,} pairs of continuations"
        )


def _format_number(measured: Mapping[str, float | None]) -> str:
    if measured["value"] is None or measured["low"] is None or measured["high"] is None:
        return "not known"
    half = (measured["high"] - measured["low"]) / 2
    return f"{measured['value']:.3f} ± {half:.3f}"
