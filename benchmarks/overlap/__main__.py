"""What overlap costs and buys on two processes of a CPU: `rollout.lag = 1` against 0, at equal environment steps.

    python -m benchmarks.overlap [--seeds 3] [--updates 36] [--write benchmarks/results/overlap_household.json]

The demo's home under HGPO (`examples/household.toml`), 16 tasks of 8 rollouts an update, the log-probs before an update
from the learner. One model imitates the demo's teacher; every run goes on from these weights. The trainer has one
thread, our own engine is a server process with another. The two runs of a seed take turns, an update each, so that
other work on the machine falls on both; processor seconds stand beside wall-clock. Success is that of rollouts at 240
held-out tasks at temperature 1, before, every so many updates and after. Results are written after each seed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # for the engine's process too

import torch
import transformers

from benchmarks.overlap.summary import summarise
from benchmarks.overlap.turns import run_in_turns
from benchmarks.overlap.variants import VARIANTS, describe_run, make_start, play_run
from benchmarks.result_file import write_result


def measure_seed(seed: int, options: argparse.Namespace, start: Path, folder: Path) -> list[dict[str, Any]]:
    """The runs of a seed, which take turns."""
    load = os.getloadavg()[0]
    jobs = {}
    for variant in VARIANTS:
        settings = describe_run(
            start,
            variant=variant,
            seed=seed,
            updates=options.updates,
            tasks=options.tasks,
            task_set=options.task_set,
            every=options.every,
        )
        run_folder = folder / f"{variant.replace(' ', '_')}_seed_{seed}"
        jobs[variant] = lambda turns, settings=settings, run_folder=run_folder: play_run(settings, run_folder, turns)
    results = run_in_turns(jobs)
    loads = {"load_average_before": round(load, 1), "load_average_after": round(os.getloadavg()[0], 1)}
    return [{"variant": variant, "seed": seed, **loads, **result} for variant, result in results.items()]


def describe(options: argparse.Namespace, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything that is written: conditions, summary, runs."""
    return {
        "command": "python -m benchmarks.overlap " + shlex.join(sys.argv[1:]),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}",
        "tasks": options.tasks,
        "updates": options.updates,
        "held_out_tasks": options.task_set,
        "seeds": sorted({record["seed"] for record in records}),
        "summary": summarise(records, list(VARIANTS)),
        "runs": records,
    }


def main() -> None:
    """Run every seed, print the summary, write the results as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=36)
    parser.add_argument("--tasks", type=int, default=16, help="tasks of an update")
    parser.add_argument("--task_set", type=int, default=240, help="held-out tasks")
    parser.add_argument("--every", type=int, default=6, help="updates between evaluations")
    parser.add_argument("--start", type=Path, help="folder of the start; made where it is not there yet")
    parser.add_argument("--small-start", action="store_true", help="hardly any imitation: to try the script")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, records = Path(name), list[dict[str, Any]]()
        start = options.start or folder / "start"
        if not start.exists():
            make_start(start, small=options.small_start)
        for seed in range(options.seeds):
            records += measure_seed(seed, options, start, folder)
            write_result(describe(options, records), options.write)
            print(f"seed {seed}: {json.dumps(describe(options, records)['summary']['success'][-1])}", flush=True)
    print(json.dumps(describe(options, records)["summary"], indent=1))


if __name__ == "__main__":
    main()
