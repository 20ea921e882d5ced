"""Everything that was found, in one record and in a few sentences."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from benchmarks.alfworld.evaluating import at_temperature, compare_pairs, summarise_rows
from benchmarks.alfworld.methods import common_updates
from benchmarks.alfworld.records import method_record, read_record, start_record
from benchmarks.alfworld.settings import (
    PAPERS,
    SPLITS,
    TEMPERATURES,
    Measurement,
    choose_key,
    list_own_parts,
    run_settings,
    settings_hash,
)
from benchmarks.alfworld.start import has_gpu

START_INFO = ("imitated", "imitated_noisy", "seconds", "seed")
"""What of a start's record is kept beside its success."""
STARTS = {"base": "as it comes", "warm_start": "after imitation"}


def summarise(
    folder: Path, measurement: Measurement, *, methods: Sequence[str], name: str, command: str, commit: str
) -> dict[str, Any]:
    """What the records of some methods in a folder amount to, whether or not all stages are there."""
    start = read_record(start_record(folder))
    records = {method: read_record(method_record(folder, method)) for method in methods}
    records = {method: record for method, record in records.items() if record.get("curve")}
    chosen = common_updates(records)
    rows = {method: record["evaluations"].get(str(chosen[method]), []) for method, record in records.items()}
    rows = {
        **{name: start[name] for name in STARTS if name in start},
        **{m: rollouts for m, rollouts in rows.items() if rollouts},
    }
    usual, sampled = TEMPERATURES
    content = run_settings(name, "", measurement, method="grpo", on_gpu=has_gpu())
    return {
        "command": command,
        "model": name,
        "commit": commit,
        "seed": measurement.seed,
        "key": measurement.key,
        "settings": {method: settings_hash(measurement, method=method, on_gpu=has_gpu()) for method in records},
        **_machine(),
        "sizes": asdict(measurement.sizes),
        **{section: content.get(section) for section in ("engine", "rollout", "training")},
        "loss": content["algorithm"]["loss"],
        "start": {name: start.get(name) for name in START_INFO if name in start},
        "hours": count_hours(start, records, side_by_side=has_gpu()),
        "temperature": usual,
        "success": {name: summarise_rows(at_temperature(rollouts, usual)) for name, rollouts in rows.items()},
        "success_at_1": {name: summarise_rows(at_temperature(rollouts, sampled)) for name, rollouts in rows.items()},
        "methods": {
            method: _describe_method(measurement, method, records[method], chosen[method]) for method in records
        },
        "differences": [
            {
                "from": one,
                "to": other,
                "temperature": temperature,
                **compare_pairs(at_temperature(rows[one], temperature), at_temperature(rows[other], temperature)),
            }
            for temperature in TEMPERATURES
            for one, other in _list_comparisons(list(rows))
        ],
        "papers": {"model": "Qwen2.5-1.5B-Instruct", "source": "arXiv:2602.22817", "success": PAPERS},
        "solved": {name: _list_solved(at_temperature(rollouts, usual)) for name, rollouts in rows.items()},
    }


def _describe_method(measurement: Measurement, method: str, record: Mapping[str, Any], update: int) -> dict[str, Any]:
    """What a method's run has of its own, how it went, and the update that it is compared at."""
    return {
        "key": choose_key(measurement, method=method),
        "own_parts": list_own_parts(measurement, method=method),
        "update": update,
        "total_steps": next((mark["total_steps"] for mark in record["marks"] if mark["update"] == update), 0),
        "made": {"updates": len(record["curve"]), "total_steps": record["curve"][-1]["total_steps"]},
        "seconds": record["seconds"],
        "curve": record["curve"],
        "by_mark": _by_mark(record),
    }


def _by_mark(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Success on both task sets at each mark that was played, with the tasks that were solved."""
    rows_at = {mark["update"]: record["evaluations"].get(str(mark["update"]), []) for mark in record["marks"]}
    return [
        {**mark, "success": summarise_rows(at_temperature(rows_at[mark["update"]], TEMPERATURES[0]))}
        for mark in record["marks"]
        if rows_at[mark["update"]]
    ]


def _list_comparisons(names: Sequence[str]) -> list[tuple[str, str]]:
    """The two starts, the last start with each method, and each two methods."""
    methods = [name for name in names if name not in STARTS]
    starts = [name for name in names if name in STARTS]
    return [
        *pairwise(starts),
        *((name, method) for name in starts[-1:] for method in methods),
        *combinations(methods, 2),
    ]


def _list_solved(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """By task set and task: of each repetition, whether it was solved; so that others can compare with it task by
    task."""
    solved: dict[str, dict[str, list[int]]] = {split: {} for split in SPLITS}
    for row in rows:
        solved[row["split"]].setdefault(row["task"], []).append(int(row["success"] or 0))
    return solved


def _machine() -> dict[str, str]:
    import torch
    import transformers

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return {"device": device, **versions}


def sentences(summary: Mapping[str, Any]) -> str:
    """The findings for a reader, with the distance to what the papers report."""
    lines = [
        line
        for temperature, success in zip(TEMPERATURES, (summary["success"], summary["success_at_1"]), strict=True)
        for line in _success_lines(success, temperature)
    ]
    for one in summary["differences"]:
        shown = [f"{split} {_points(one[split])}" for split in SPLITS if split in one]
        comparison = f"{one['from']} to {one['to']} at temperature {one['temperature']}, same games: "
        lines += [comparison + "; ".join(shown)] if shown else []
    for method, one in summary["methods"].items():
        made, minutes = one["made"], one["seconds"].get("train", 0.0) / 60
        lines.append(
            f"{method}: measured after update {one['update']}, {one['total_steps']} environment steps; it made "
            f"{made['updates']} updates, {made['total_steps']} steps, in {minutes:.1f} minutes"
        )
    lines.append(f"all stages together: {summary['hours']:.2f} hours {_name_hours(summary)}")
    lines += [_distance(method, summary["success"][method]) for method in PAPERS if method in summary["success"]]
    return "\n".join(lines)


def _name_hours(summary: Mapping[str, Any]) -> str:
    return "of one device, the methods beside each other" if summary.get("engine") else "of one core"


def _success_lines(success: Mapping[str, Any], temperature: float) -> list[str]:
    head = f"temperature {temperature}: success (95 % interval)"
    return [
        f"{head:<44}" + "".join(f"{split:>26}" for split in SPLITS),
        *(
            f"{STARTS.get(name, name):<44}"
            + "".join(f"{_format_task_set(task_sets.get(split)):>26}" for split in SPLITS)
            for name, task_sets in success.items()
        ),
    ]


def _format_task_set(task_set: Mapping[str, Any] | None) -> str:
    if task_set is None:
        return "-"
    low, high = task_set["interval"]
    return f"{100 * task_set['success']:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _points(one: Mapping[str, Any]) -> str:
    low, high = one["interval"]
    return f"{100 * one['difference']:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"


def _distance(method: str, task_sets: Mapping[str, Any]) -> str:
    """How far a method is from its paper's result, which a model ten times the size reached in 160 updates."""
    parts = [
        f"{split} {100 * task_sets[split]['success']:.1f} % against {100 * paper:.1f} %, "
        f"{_apart(task_sets[split]['success'] - paper)}"
        for split, paper in PAPERS[method].items()
        if split in task_sets
    ]
    return f"{method} against the paper's Qwen2.5-1.5B (160 updates, other prompts, no imitation): " + "; ".join(parts)


def _apart(difference: float) -> str:
    return f"{100 * abs(difference):.1f} points {'above' if difference > 0 else 'below'}"


def count_hours(
    start: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]], *, side_by_side: bool = True
) -> float:
    """Hours that a start and the methods after it took.

    Methods that share a GPU run beside each other, so the longest counts; on a processor each has a core, and all do.
    """
    seconds = [
        sum(part for name, part in record["seconds"].items() if name != "task_sets") for record in records.values()
    ]
    methods = max(seconds, default=0.0) if side_by_side else sum(seconds)  # "task_sets" are part of "evaluate"
    return float(round((sum(start.get("seconds", {}).values()) + methods) / 3600, 3))
