"""Does credit that tells the lines of an answer apart learn faster? GRPO and three others on worked sums.

    python -m benchmarks.line_learning [--seeds 5] [--processes 2] [--minutes 60] [--tokens 4000000]
                                       [--folder runs/line_learning] [--write benchmarks/results/line_learning.json]

For every seed a small model imitates a teacher that slips; each variant (`variants.py`) then goes on from these weights
with the same tasks and one loss, until it has sampled `--tokens`, those of its probes counted. Its learning rate is the
one of `--rates` that did best by itself on a seed that is not reported. Success is that on the 400 held-out sums, two
answers each at temperature 1. Variants are compared where all have sampled the same number of tokens (that of the run
which sampled least), and where all have trained on the same number of rollouts. Over seeds: interquartile mean with a
95 % bootstrap interval, and the probability that a run is better than one of GRPO (Agarwal et al. 2021,
arXiv:2108.13264).

After `--minutes` every run stops; where there are more runs than processes each has its share of that time. Called
again with the same folder, runs go on where they stopped, and those that are done stay. The result is written every
few seconds; `--minutes 0` only sums up what is there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.line_learning.runs import RUN_FILE, Job, go_on, make_start, read_record
from benchmarks.line_learning.summary import choose_rate, report, summarise
from benchmarks.line_learning.variants import BASELINE, LOSS, VARIANTS
from benchmarks.result_file import read_commit, write_runs

WRITE_EVERY = 10.0
"""Seconds between two writings of the result."""
EVALUATIONS = 25
"""Evaluations of a run at equal parts of its tokens."""
TRIAL_SEED = 100
"""Where learning rates are tried."""
TRIAL_SHARE = 0.2
"""Of the tokens and of the time that a trial of learning rates may have."""


def measure(options: argparse.Namespace, command: str) -> dict[str, Any]:
    """Make the starts, try the rates, make the runs; what has come out when time is over."""
    if options.minutes > 0:
        begins_at = time.time()
        ends_at, trial_ends_at = (begins_at + 60 * options.minutes * share for share in (1.0, TRIAL_SHARE))
        with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
            trials = list_trials(options)
            list(pool.map(make_start, {job["seed"]: job for job in (*trials, *list_runs(options, {}))}.values()))
            # A start is quick or slow, as the machine is: the trial has its share of what is left.
            trial_ends_at += (1 - TRIAL_SHARE) * (time.time() - begins_at)
            if not _has_rates(options):
                play_jobs(pool, trials, options, ends_at=trial_ends_at)
                _write_rates(options, trials)
            runs = list_runs(options, _read_rates(options))
            play_jobs(pool, runs, options, ends_at=ends_at, after=lambda: write_summary(options, command))
    return write_summary(options, command)


def play_jobs(
    pool: Executor,
    jobs: Sequence[Job],
    options: argparse.Namespace,
    *,
    ends_at: float,
    after: Callable[[], object] = lambda: None,
) -> None:
    """Let those that have tokens left go on, each with its share of the time; `after` is called now and then.

    One that fails is told of and leaves the others their time.
    """
    left = [job for job in jobs if (read_record(job) or {"tokens": 0})["tokens"] < job["tokens"]]
    waves = math.ceil(len(left) / options.processes)
    names = {
        pool.submit(go_on, {**job, "ends_at": ends_at, "waves_left": waves - place // options.processes}): job["name"]
        for place, job in enumerate(left)
    }
    running = set(names)
    while running:
        done, running = wait(running, timeout=WRITE_EVERY)
        after()
        for run in done:
            if error := run.exception():
                print(f"{names[run]} failed: {error!r}", file=sys.stderr, flush=True)


def list_runs(options: argparse.Namespace, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Every run that is reported, the variants of a seed beside each other: a cut leaves whole seeds."""
    return [
        _describe_job(options, variant, seed, rates.get(variant, math.nan), name=f"{variant}-{seed}", share=1.0)
        for seed in range(options.seeds)
        for variant in VARIANTS
    ]


def list_trials(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A short run of each variant with each learning rate; none where there is one rate."""
    return [
        _describe_job(options, variant, TRIAL_SEED, rate, name=f"trial-{variant}-{rate:g}", share=TRIAL_SHARE)
        for variant in VARIANTS
        for rate in (options.rates if len(options.rates) > 1 else ())
    ]


def _describe_job(
    options: argparse.Namespace, variant: str, seed: int, rate: float, *, name: str, share: float
) -> dict[str, Any]:
    return {
        "variant": variant,
        "seed": seed,
        "name": name,
        "learning_rate": rate,
        "folder": str(options.folder),
        "changes": options.changes,
        "tokens": round(share * options.tokens),
        "tokens_between": options.tokens / EVALUATIONS,
        "episodes_between": options.episodes / EVALUATIONS,
        "episodes_watched": options.episodes,
    }


def _has_rates(options: argparse.Namespace) -> bool:
    return (options.folder / "rates.json").is_file()


def _write_rates(options: argparse.Namespace, trials: Sequence[Job]) -> None:
    """Choose each variant's learning rate, for good: runs that go on later keep it."""
    chosen = {
        variant: choose_rate([record for job in trials if job["variant"] == variant and (record := read_record(job))])
        if trials
        else {"chosen": options.rates[0]}
        for variant in VARIANTS
    }
    (options.folder / "rates.json").write_text(json.dumps(chosen), encoding="utf-8")


def _read_rates(options: argparse.Namespace) -> dict[str, float]:
    return {variant: rate["chosen"] for variant, rate in _read_chosen(options).items()}


def _read_chosen(options: argparse.Namespace) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if _has_rates(options):
        chosen = json.loads((options.folder / "rates.json").read_text(encoding="utf-8"))
    return chosen


def write_summary(options: argparse.Namespace, command: str) -> dict[str, Any]:
    """What the records in the folder come to, written where that is asked for: a row a line."""
    records = [record for job in list_runs(options, {}) if (record := read_record(job))]
    content = {
        "command": command,
        "commit": options.commit or read_commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "settings": _describe_settings(options),
        "learning_rates": _read_chosen(options),
        "baseline": BASELINE,
        **summarise(records, list(VARIANTS)),
    }
    write_runs(content, records, options.write)
    return content


def _describe_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that the runs of a folder share."""
    return {
        "run_file": RUN_FILE.read_text(encoding="utf-8"),
        "changes": options.changes,
        "variants": {variant: dict(settings) for variant, settings in VARIANTS.items()},
        "loss": dict(LOSS),
        "rates": options.rates,
        "tokens": options.tokens,
        "episodes": options.episodes,
    }


def _check_folder(options: argparse.Namespace) -> None:
    """Refuse a folder whose runs have other settings: they must not be summed up with these."""
    path, settings = options.folder / "settings.json", _describe_settings(options)
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) != settings:
        sys.exit(f"{path} has other settings than these runs would have; give another --folder, or the same settings")
    options.folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=1), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything, print a table, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2, help="runs beside each other, a thread each")
    parser.add_argument("--minutes", type=float, default=60.0, help="wall-clock minutes, the starts included")
    parser.add_argument("--tokens", type=int, default=4_000_000, help="sampled tokens of a run, with its probes'")
    parser.add_argument("--episodes", type=int, default=12_800, help="rollouts up to which evaluations are denser")
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-5, 1e-4, 3e-4], help="learning rates to try")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE", help="of run.toml")
    parser.add_argument("--folder", type=Path, default=Path("runs/line_learning"), help="starts, runs and records")
    parser.add_argument("--commit", default="", help="of this code, where it is no git checkout")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args(arguments)
    _check_folder(options)
    given = sys.argv[1:] if arguments is None else list(arguments)
    print(report(measure(options, " ".join(["python -m benchmarks.line_learning", *given]))))


if __name__ == "__main__":
    main()
