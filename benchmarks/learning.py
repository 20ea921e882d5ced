"""Do the methods learn? GRPO, GiGPO and HGPO from the same start, on the same attempts, over several seeds.

    python -m benchmarks.learning [--seeds 5] [--processes 2] [--write benchmarks/results/learning.json]

Each environment has a run file below `benchmarks/learning_runs/`. For every seed the model is warm-started once; each
method then goes on from these weights, with the same tasks, the same number of attempts and the same seeds of sampling.
Success is that of the attempts the updates sample (training tasks, temperature 1), against environment steps taken so
far; beside it stands success on the held-out panel before and after. Over the seeds: interquartile mean with a 95 %
bootstrap interval (Agarwal et al. 2021, arXiv:2108.13264).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

RUNS = Path(__file__).parent / "learning_runs"
METHODS: dict[str, dict[str, Any]] = {
    "grpo": {"recipe": "grpo"},
    "gigpo": {"recipe": "gigpo", "invalid_penalty": 0.0},
    "hgpo": {"recipe": "hgpo", "invalid_penalty": 0.0},
}
"""The algorithms; the penalty for invalid actions is left out, so that they differ in their comparisons alone."""
POINTS = 8
"""Points of a curve: means over so many parts of the run."""


def one_seed(environment: str, seed: int) -> list[dict[str, Any]]:
    """Warm-start once, then train with each method from there; a record a method."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from groupwise.recipes.run_file import decode_run, load_run
    from groupwise.training.evaluation import evaluate
    from groupwise.training.run import open_run
    from groupwise.training.warm_start import warm_start

    torch.set_num_threads(1)
    settings = load_run(RUNS / f"{environment}.toml", overrides=[f"seed={seed}"]).config()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        base = open_run(decode_run(settings), Path(folder) / "start")
        if base.config.warm_start is not None:
            warm_start(base, base.config.warm_start)
        before = evaluate(base, write=False).success
        start = copy.deepcopy(base.learner.model), base.tokenizer
        del settings["warm_start"]
        for method, algorithm in METHODS.items():
            loss = settings["algorithm"]["loss"]
            config = decode_run({**settings, "algorithm": {**algorithm, "loss": loss}})
            run = open_run(config, Path(folder) / method, model_and_tokenizer=copy.deepcopy(start))
            found.append(_trained(run, environment, method, seed, before))
    return found


def _trained(run: Any, environment: str, method: str, seed: int, before: float) -> dict[str, Any]:
    from groupwise.training.evaluation import evaluate
    from groupwise.training.loop import train

    began = time.process_time()
    train(run)
    lengths, success = (dict(run.journal.curve(name)) for name in ("rollout/steps", "rollout/success"))
    attempts = run.config.training.tasks * run.config.rollout.plan.attempts
    steps, curve = 0.0, []
    for number, share in success.items():
        steps += attempts * lengths[number]
        curve.append([round(steps), share])
    after = evaluate(run, write=False).success
    print(f"{environment} {method} seed {seed}: {before:.3f} to {after:.3f}", file=sys.stderr, flush=True)
    seconds = time.process_time() - began
    return {
        "environment": environment,
        "method": method,
        "seed": seed,
        "before": before,
        "after": after,
        "curve": curve,
        "core_seconds": round(seconds, 1),
    }


def interquartile_mean(values: Sequence[float]) -> float:
    """The mean of the middle half: a quarter of the values is cut off at either end, rounded down."""
    cut = len(values) // 4
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def bootstrap(values: Sequence[float], *, draws: int = 2000) -> tuple[float, float]:
    """95 % interval of the interquartile mean, seeds drawn with replacement."""
    random = Random(0)
    means = sorted(interquartile_mean(random.choices(values, k=len(values))) for _ in range(draws))
    return means[round(0.025 * draws)], means[round(0.975 * draws) - 1]


def summary(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each environment and method: before, after, and the curve, over the seeds."""
    found = []
    for environment, method in dict.fromkeys((one["environment"], one["method"]) for one in records):
        chosen = [one for one in records if (one["environment"], one["method"]) == (environment, method)]
        found.append(
            {
                "environment": environment,
                "method": method,
                "seeds": len(chosen),
                **{name: _spread([one[name] for one in chosen]) for name in ("before", "after")},
                "curve": _curve([one["curve"] for one in chosen]),
            }
        )
    return found


def _spread(values: Sequence[float]) -> dict[str, Any]:
    return {"iqm": round(interquartile_mean(values), 4), "interval": [round(end, 4) for end in bootstrap(values)]}


def _curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[dict[str, Any]]:
    """Means over parts of the run: updates have other tasks each, so single ones say little."""
    length = min(len(curve) for curve in curves)
    cuts = [length * i // POINTS for i in range(POINTS + 1)]
    points = []
    for first, last in pairwise(cuts):
        if first < last:
            shares = [statistics.fmean(share for _, share in curve[first:last]) for curve in curves]
            steps = statistics.fmean(curve[last - 1][0] for curve in curves)
            points.append({"steps": round(steps), "success": _spread(shares)})
    return points


def report(found: Sequence[dict[str, Any]]) -> None:
    """Print a table a person can read."""
    print(f"{'environment':<12} {'method':<6} {'before':>7} {'after':>7}  95 % interval    success by part of the run")
    for one in found:
        low, high = one["after"]["interval"]
        curve = " ".join(f"{100 * point['success']['iqm']:3.0f}" for point in one["curve"])
        before, after = (100 * one[name]["iqm"] for name in ("before", "after"))
        print(
            f"{one['environment']:<12} {one['method']:<6} {before:6.1f}% {after:6.1f}%"
            f"  {100 * low:5.1f} to {100 * high:5.1f}   {curve}"
        )


def main() -> None:
    """Run everything, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--environments", nargs="*", default=sorted(path.stem for path in RUNS.glob("*.toml")))
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    jobs = [(environment, seed) for seed in range(options.seeds) for environment in options.environments]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(one_seed, *zip(*jobs, strict=True)))
    records = sorted(
        (one for records in found for one in records), key=lambda one: (one["environment"], one["method"], one["seed"])
    )
    table = summary(records)
    report(table)
    if options.write:
        content = {
            "command": "python -m benchmarks.learning " + " ".join(sys.argv[1:]),
            "python": platform.python_version(),
            "processor": platform.processor() or platform.machine(),
            "summary": table,
            "runs": records,
        }
        options.write.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
