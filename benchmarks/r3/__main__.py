"""R^3 where it claims to work: long answers whose limit cuts many that fail, questions that come round.

    python -m benchmarks.r3 [--seeds 4] [--processes 2] [--minutes 60] [--tokens 700000] [--variants NAME ...]
                            [--folder runs/r3] [--add EARLIER.json] [--write benchmarks/results/r3.json]
    python -m benchmarks.r3 --calibrate [--limits 42 50 62 ...] [--long-limit 240] [--set KEY=VALUE ...] [--folder F]

The start is a small model that has imitated a teacher who writes its search out (`written_search.py`, `start.toml`); as
with a pretrained model, all seeds begin there, and differ in the order of questions and in what is sampled. 256
questions with eight answers each, under a limit that hardly any reaches, say what the limit of training cuts
(`calibration`; `--calibrate` ends there). Each variant (`variants.py`) then goes on from these weights on the same 512
questions until it has sampled `--tokens`, those of hinted rollouts among them. Measured on the way: held-out questions,
and some of the training ones, eight answers each at temperature 1. Variants are compared where all have sampled the
same number of tokens, over the seeds that all variants have: interquartile mean, a 95 % interval over seeds, and the
probability that a run is better than one of GRPO (Agarwal et al. 2021, arXiv:2108.13264).

After `--minutes` every run stops, and one that has sampled less than three quarters of its tokens is left out. Called
again with the same folder, or with `--add` and an earlier result, runs that are done stay. The result is written every
few seconds; `--minutes 0` only sums up what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.r3.runs import LIMITS, LONG_LIMIT, RUN_FILE, Job, calibrate, go_on, name_record, read_record
from benchmarks.r3.summary import POINTS, report, summarise
from benchmarks.r3.variants import BASELINE, LOSS, VARIANTS
from benchmarks.result_file import read_commit, write_runs

WRITE_EVERY = 10.0
"""Seconds between two writings of the result."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Calibrate and make the runs; what has come out when time is over."""
    if options.minutes > 0:
        ends_at = time.time() + 60 * options.minutes
        left = [{**job, "ends_at": ends_at} for job in list_jobs(options) if not _is_done(job)]
        with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(calibrate, left[0])} | {pool.submit(go_on, job) for job in left} if left else set()
            while running:
                done, running = wait(running, timeout=WRITE_EVERY, return_when=FIRST_COMPLETED)
                for future in done:
                    _report_failure(future)
                write_summary(options)
    return write_summary(options)


def _report_failure(future: Future[Any]) -> None:
    """Tell of a run that failed, and leave the others their time."""
    if error := future.exception():
        print(f"a run failed: {error!r}", file=sys.stderr, flush=True)


def list_jobs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every run, the variants of a seed beside each other: a cut leaves whole seeds."""
    return [
        {
            "variant": variant,
            "seed": seed,
            "folder": str(options.folder),
            "changes": options.changes,
            "tokens": options.tokens,
            "marks": [options.tokens * part / POINTS for part in range(1, POINTS + 1)],
            "training_questions": options.training_questions,
            "limits": options.limits,
            "long_limit": options.long_limit,
            "commit": options.commit or read_commit(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        }
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for variant in options.variants
    ]


def _is_done(job: Job) -> bool:
    record = read_record(job)
    return record is not None and record["rows"][-1]["tokens"] >= job["tokens"]


def write_summary(options: argparse.Namespace) -> dict[str, Any]:
    """What the records in the folder come to, written where that is asked for: a run a line."""
    jobs = list_jobs(options)
    records = [record for job in jobs if (record := read_record(job)) and record["rows"]]
    path = options.folder / "calibration.json"
    content = {
        "command": options.command,
        "settings": describe_settings(options),
        "baseline": BASELINE,
        "calibration": json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None,
        **summarise(records, options.variants, options.tokens),
    }
    write_runs(content, records, options.write)
    return content


def describe_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that runs must share to be summed up together."""
    return {
        "run_file": RUN_FILE.read_text(encoding="utf-8"),
        "changes": options.changes,
        "variants": VARIANTS,
        "loss": LOSS,
        "tokens": options.tokens,
    }


def add_runs(options: argparse.Namespace) -> None:
    """Let the whole runs of an earlier result count as done; refuse one with other settings."""
    earlier = json.loads(options.add.read_text(encoding="utf-8"))
    if earlier["settings"] != json.loads(json.dumps(describe_settings(options))):
        sys.exit(f"{options.add} has other settings than these runs would have; leave --add out, or take its settings")
    (options.folder / "records").mkdir(parents=True, exist_ok=True)
    whole = [record for record in earlier["runs"] if record["rows"][-1]["tokens"] >= options.tokens]
    for record in whole:
        path = name_record({"folder": options.folder, **record})
        if not path.is_file():
            path.write_text(json.dumps(record), encoding="utf-8")
    calibration = options.folder / "calibration.json"
    if earlier["calibration"] and not calibration.is_file():
        calibration.write_text(json.dumps(earlier["calibration"]), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything, print a table, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="runs beside each other, a thread each")
    parser.add_argument("--minutes", type=float, default=60.0, help="wall-clock minutes")
    parser.add_argument("--tokens", type=int, default=700_000, help="sampled tokens of a run")
    parser.add_argument("--training-questions", type=int, default=128, help="training questions that are measured")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE", help="of run.toml")
    parser.add_argument("--folder", type=Path, default=Path("runs/r3"), help="runs and records")
    parser.add_argument("--add", type=Path, help="an earlier result, whose whole runs stay and are summed up too")
    parser.add_argument(
        "--calibrate", action="store_true", help="only say what limits would cut of the start's answers"
    )
    parser.add_argument("--limits", type=int, nargs="+", default=list(LIMITS), help="what the limit might have been")
    parser.add_argument("--long-limit", type=int, default=LONG_LIMIT, help="one that hardly any answer reaches")
    parser.add_argument("--commit", default="", help="of this code, where it is no git checkout")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else list(arguments)
    options.command = " ".join(["python -m benchmarks.r3", *given])
    if options.calibrate:
        options.folder.mkdir(parents=True, exist_ok=True)
        calibrate(list_jobs(options)[0])
        return
    if options.add:
        add_runs(options)
    print(report(measure(options)))


if __name__ == "__main__":
    main()
