"""Records of several seeds, read together; those that cannot be pooled are refused, each in one sentence."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.alfworld.settings import METHODS, SPLITS, VARIANTS
from groupwise.system.errors import ConfigError

SHARED = (
    *("model", "key", "sizes", "engine", "rollout", "training", "loss", "temperature"),
    *("device", "python", "torch", "transformers"),
)
"""What all pooled records agree in, whichever methods they hold; marks of environment steps are among the sizes."""
STARTS = (("start", "imitated"), ("success", "warm_start"))
"""Where a record says what its methods go on from."""
BOTH = "both"
"""All games of both task sets together."""
TASK_SETS = (*SPLITS, BOTH)
TRAINING = "training"
"""Success on the games that were trained on, update by update."""

SeedRecord = Mapping[str, Any]
"""What `--stage report` wrote of a seed."""
Records = Mapping[str, SeedRecord]
"""Records by their file and its folder, such as `alfworld_seeds/observation_seed_0.json`."""


def read_seed_records(paths: Sequence[Path]) -> dict[str, SeedRecord]:
    """The records in files and folders, in the order of their names; a folder gives all its JSON files."""
    records: dict[str, SeedRecord] = {}
    for file in (file for path in paths for file in (path.glob("*.json") if path.is_dir() else [path])):
        name = f"{file.resolve().parent.name}/{file.name}"
        if not file.is_file():
            raise ConfigError(f"{file}: there is no such record; `python -m benchmarks.alfworld` makes one")
        if name in records:
            raise ConfigError(f"{name}: two records have this name; rename a folder, or leave one out")
        records[name] = _read_record(file)
    if not records:
        raise ConfigError(
            f"{', '.join(map(str, paths))}: no record lies there; `python -m benchmarks.alfworld` makes one"
        )
    return dict(sorted(records.items()))


def _read_record(file: Path) -> SeedRecord:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file}: it is not JSON ({error}); leave it out, or make it anew") from None
    if not isinstance(record, dict):
        raise ConfigError(f"{file}: found {type(record).__name__}, and a record is an object; leave it out")
    for part in ("settings", "seed", "methods", *SHARED):
        if part not in record:
            raise ConfigError(f"{file}: it has no {part!r}, and what it was made with must be known; leave it out")
    for section, part in STARTS:
        if part not in record.get(section, {}):
            raise ConfigError(
                f"{file}: it has no '{section}.{part}', and methods are compared from one start; leave it out"
            )
    return record


def check_records(records: Records) -> None:
    """Refuse records of other settings, of a method under two settings, of a seed twice, or from two starts."""
    first_name, first = next(iter(records.items()))
    file_of: dict[tuple[str, int], str] = {}
    settings_of: dict[str, tuple[str, str | None]] = {}
    start_of: dict[int, tuple[str, Any]] = {}
    for name, record in records.items():
        for section in SHARED:
            if record[section] != first[section]:
                raise ConfigError(f"{name}: its {section!r} differs from that of {first_name}; pool it by itself")
        for method in record["methods"]:
            settings = record["settings"].get(method)
            other, known_settings = settings_of.setdefault(method, (name, settings))
            if settings != known_settings:
                raise ConfigError(
                    f"{name}: {method} has other settings there ({settings}) than in {other} ({known_settings}); "
                    "pool it by itself"
                )
            known = file_of.setdefault((method, record["seed"]), name)
            if known != name:
                raise ConfigError(
                    f"{name}: seed {record['seed']} of {method} is in {known} too; a seed counts once, leave one out"
                )
        begun, start = start_of.setdefault(record["seed"], (name, _describe_start(record)))
        if start != _describe_start(record):
            raise ConfigError(
                f"{name}: seed {record['seed']} has another start there than in {begun}; "
                "methods are compared from one start, pool it by itself"
            )


def _describe_start(record: SeedRecord) -> Any:
    """What tells a start from another one of the same seed: a GPU makes it anew with other last digits."""
    return [record[section][part] for section, part in STARTS]


def list_methods(records: Records) -> list[str]:
    """Every method: those that all measurements have, then as the records name them; variants last."""
    named = dict.fromkeys(method for record in records.values() for method in record["methods"])
    order = [*METHODS, *(method for method in named if method not in VARIANTS), *VARIANTS]
    return [method for method in dict.fromkeys(order) if method in named]


def list_marks(record: SeedRecord) -> list[int]:
    """The environment steps of all marks up to the last."""
    spacing, last = record["sizes"]["mark"], record["sizes"]["compare_at"]
    return list(range(spacing, last + 1, spacing))


def collect_scores(records: Records, steps: int) -> dict[str, dict[int, dict[str, Any]]]:
    """By method and seed: success by task set after the first update past a mark, and the steps made by then.

    A seed counts at a mark only where all methods of its record were evaluated there: otherwise methods would be
    compared over different seeds.
    """
    scores: dict[str, dict[int, dict[str, Any]]] = {}
    for record in records.values():
        reached = {
            method: next(_evaluations_at(record, method, steps // record["sizes"]["mark"]), None)
            for method in record["methods"]
        }
        for method, evaluation in reached.items():
            if evaluation is not None and None not in reached.values():
                success = score_task_sets(evaluation["success"])
                scores.setdefault(method, {})[record["seed"]] = {**success, "total_steps": evaluation["total_steps"]}
    return scores


def collect_sampled_scores(records: Records) -> dict[str, dict[int, dict[str, Any]]]:
    """The same after the update that methods are compared at, at temperature 1, as rollouts are sampled in training.

    A seed counts where all methods of its record were evaluated so and have come to the last mark.
    """
    scores: dict[str, dict[int, dict[str, Any]]] = {}
    for record in records.values():
        sampled = {method: record.get("success_at_1", {}).get(method) for method in record["methods"]}
        has_come = all(
            record["methods"][method].get("total_steps", 0) >= record["sizes"]["compare_at"] for method in sampled
        )
        if has_come and all(sampled.values()):
            for method, success in sampled.items():
                total_steps = record["methods"][method]["total_steps"]
                scores.setdefault(method, {})[record["seed"]] = {**score_task_sets(success), "total_steps": total_steps}
    return scores


def collect_training_scores(records: Records) -> dict[str, dict[int, dict[str, Any]]]:
    """By method and seed: mean success of the updates that ended in the second half of the steps."""
    scores: dict[str, dict[int, dict[str, Any]]] = {}
    for record in records.values():
        end = record["sizes"]["compare_at"]
        for method, described in record["methods"].items():
            late = [point["success"] for point in described.get("curve", ()) if end / 2 < point["total_steps"] <= end]
            if late:
                scores.setdefault(method, {})[record["seed"]] = {TRAINING: round(statistics.fmean(late), 4)}
    return scores


def _evaluations_at(record: SeedRecord, method: str, mark: int) -> Iterator[Mapping[str, Any]]:
    """What was evaluated past a mark and before the next, in the order of updates."""
    return (evaluation for evaluation in record["methods"][method]["by_mark"] if evaluation["mark"] == mark)


def score_task_sets(success: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Success on each task set and on all their games together."""
    tasks = {split: success[split]["tasks"] for split in SPLITS}
    solved = sum(success[split]["success"] * tasks[split] for split in SPLITS)
    return {**{split: success[split]["success"] for split in SPLITS}, BOTH: round(solved / sum(tasks.values()), 4)}
