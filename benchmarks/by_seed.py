"""Variants of a run file over seeds, each less the first of them at the same seed.

A benchmark gives its variants. Each finished run is a file of `--folder`; the same command then makes only the others.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.alfworld.recurrence import audit_rollouts, share_of_levels, write_whole_groups
from benchmarks.result_file import describe_command, read_commit, write_json, write_result
from groupwise.store.run_folder import RunPaths
from groupwise.training.config.run_file import decode_run
from groupwise.training.evaluation.summary import Z_95, student_quantile
from groupwise.training.open_run import open_run


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared."""

    module: str
    """The benchmark, as `python -m` names it."""
    run: Path
    """The run file that gives all settings but the method."""
    variants: Mapping[str, Mapping[str, Any]]
    """Methods and their options by name; the first is what the others are compared with."""
    short: Sequence[str]
    """Overrides of a short run."""
    settings: Sequence[str] = ()
    """Overrides of every run."""


def train_variant(comparison: Comparison, name: str, seed: int, *, is_short: bool) -> dict[str, Any]:
    """Train one run; success before, after and while training, the fit of its critic, what depths compare."""
    content = tomllib.loads(comparison.run.read_text(encoding="utf-8"))
    content["algorithm"] = {**comparison.variants[name], "loss": content["algorithm"]["loss"]}
    overrides = [f"seed={seed}", "threads=1", "shares_cores=false", *comparison.settings]
    overrides += comparison.short if is_short else []
    config, began = decode_run(content, overrides=overrides), perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with open_run(config, Path(folder) / "run") as run:
            for _ in run.updates():
                pass
            success: dict[int, list[bool]] = {}
            for row in run.journal.evaluations():
                success.setdefault(row.number, []).append(bool(row.success))
            fit, training = (
                [value for _, value in run.journal.curve(name)]
                for name in ("critic/explained_variance", "rollout/success")
            )
        seconds, rollouts = perf_counter() - began, Path(folder) / "rollouts.jsonl.gz"
        write_whole_groups(RunPaths(Path(folder) / "run").journal, rollouts)
        levels = share_of_levels(audit_rollouts(rollouts))
    first, last = success[min(success)], success[max(success)]
    return {
        "variant": name,
        "seed": seed,
        "commit": read_commit(),
        "before": statistics.fmean(first),
        "after": statistics.fmean(last),
        "training": statistics.fmean(training),
        "explained_variance": fit,
        "levels": levels,
        "seconds": seconds,
    }


def train_once(job: tuple[int, str], *, comparison: Comparison, folder: Path, is_short: bool) -> dict[str, Any]:
    """The result of a seed and a variant, from its file if there is one."""
    seed, name = job
    file = folder / f"{name}_seed_{seed}.json"
    if not file.exists():
        record = train_variant(comparison, name, seed, is_short=is_short)
        print(json.dumps(record), flush=True)
        draft = file.with_suffix(".draft")
        write_json(record, draft)
        draft.rename(file)
    return dict(json.loads(file.read_text(encoding="utf-8")))


def compare(records: Sequence[Mapping[str, Any]], bases: Sequence[str], outcome: str) -> dict[str, Any]:
    """An outcome of each variant, and by seed what it has above each base, with a 95 % interval (Student's t)."""
    values = {(record["variant"], record["seed"]): record[outcome] for record in records}
    rows: dict[str, Any] = {}
    for name in dict.fromkeys(record["variant"] for record in records):
        own = sorted(seed for variant, seed in values if variant == name)
        rows[name] = {"by_seed": [values[name, seed] for seed in own]}
        for base in bases[: bases.index(name)] if name in bases else bases:
            apart = [values[name, seed] - values[base, seed] for seed in own if (base, seed) in values]
            if len(apart) > 1:
                half = student_quantile(Z_95, len(apart) - 1) * statistics.stdev(apart) / math.sqrt(len(apart))
                mean = statistics.fmean(apart)
                rows[name][f"above_{base}"] = {"by_seed": apart, "mean": mean, "half_width": half}
    return rows


def run_benchmark(comparison: Comparison, description: str | None, *, bases: Sequence[str]) -> None:
    """The command of a benchmark."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    variants = comparison.variants
    parser.add_argument("--variants", nargs="+", choices=variants, default=list(variants))
    parser.add_argument("--short", action="store_true", help="one seed, few updates")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each in a process with one thread")
    parser.add_argument("--folder", type=Path, default=Path("runs") / comparison.module, help="finished runs")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    if options.short and options.write:
        parser.error("a short run shows nothing about learning; leave out --short to write a result")
    folder = options.folder / "short" if options.short else options.folder
    jobs = product(options.seeds[:1] if options.short else options.seeds, options.variants)
    train = partial(train_once, comparison=comparison, folder=folder, is_short=options.short)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        records = list(pool.map(train, jobs))
    compared = {outcome: compare(records, bases, outcome) for outcome in ("after", "training")}
    print(json.dumps(compared, indent=2))
    commit = ", ".join(sorted({record["commit"] for record in records}))
    chosen = ["--seeds", *map(str, options.seeds), "--variants", *options.variants]
    command = describe_command(comparison.module, chosen)
    write_result({"commit": commit, "command": command, "comparison": compared, "runs": records}, options.write)
