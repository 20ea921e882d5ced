"""PPO and Turn-PPO beside GRPO in the household example, seeds 0 to 4.

    python -m benchmarks.critic --jobs 16 --write benchmarks/results/critic.json
    python -m benchmarks.critic --short        # one seed, six updates, a short warm start: only to see that it works

All variants have the settings of examples/household.toml and the same loss settings; the method differs. The runs of a
seed begin with the same warm start. LABLOG.md says beforehand what is compared. Each finished run is a file of
`--folder`; the same command then makes only the others.
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
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.result_file import write_json, write_result
from groupwise.training.config.run_file import decode_run
from groupwise.training.evaluation.summary import Z_95, student_quantile
from groupwise.training.open_run import open_run

RUN = Path(__file__).parents[1] / "examples" / "household.toml"
CRITIC_LR = 1e-3
VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {"method": "grpo"},
    "ppo": {"method": "ppo", "critic_lr": CRITIC_LR},
    "turn_ppo": {"method": "turn_ppo", "critic_lr": CRITIC_LR},
    "ppo_value_head": {"method": "ppo", "critic_lr": CRITIC_LR, "critic_kind": "value_head"},
}
BASELINE = "grpo"
SHORT = [
    "training.updates=6",
    "training.tasks=8",
    "evaluation.tasks=40",
    "warm_start.tasks=1000",
    "warm_start.epochs=3",
]


def train_variant(name: str, seed: int, *, is_short: bool) -> dict[str, Any]:
    """Train one run, and return its success before and after, its critic's fit per update, and its seconds."""
    content = tomllib.loads(RUN.read_text(encoding="utf-8"))
    content["algorithm"] = {**VARIANTS[name], "loss": content["algorithm"]["loss"]}
    overrides = [f"seed={seed}", "threads=1", "shares_cores=false", *(SHORT if is_short else [])]
    config, began = decode_run(content, overrides=overrides), perf_counter()
    with tempfile.TemporaryDirectory() as folder, open_run(config, Path(folder) / "run") as run:
        for _ in run.updates():
            pass
        success: dict[int, list[bool]] = {}
        for row in run.journal.evaluations():
            success.setdefault(row.number, []).append(bool(row.success))
        fit = [value for _, value in run.journal.curve("critic/explained_variance")]
    first, last = success[min(success)], success[max(success)]
    return {
        "variant": name,
        "seed": seed,
        "before": statistics.fmean(first),
        "after": statistics.fmean(last),
        "explained_variance": fit,
        "seconds": perf_counter() - began,
    }


def train_once(job: tuple[int, str], *, folder: Path, is_short: bool) -> dict[str, Any]:
    """The result of a seed and a variant, from its file if there is one."""
    seed, name = job
    file = folder / f"{name}_seed_{seed}.json"
    if not file.exists():
        record = train_variant(name, seed, is_short=is_short)
        print(json.dumps(record), flush=True)
        draft = file.with_suffix(".draft")
        write_json(record, draft)
        draft.rename(file)
    return dict(json.loads(file.read_text(encoding="utf-8")))


def compare(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Success of each variant, and by seed what it has above the baseline, with a 95 % interval (Student's t)."""
    after = {(record["variant"], record["seed"]): record["after"] for record in records}
    rows: dict[str, Any] = {}
    for name in dict.fromkeys(record["variant"] for record in records):
        seeds = sorted(seed for variant, seed in after if variant == name and (BASELINE, seed) in after)
        apart = [after[name, seed] - after[BASELINE, seed] for seed in seeds]
        row: dict[str, Any] = {"success": [after[name, seed] for seed in seeds], "above_grpo": apart}
        if name != BASELINE and len(apart) > 1:
            half = student_quantile(Z_95, len(apart) - 1) * statistics.stdev(apart) / math.sqrt(len(apart))
            row |= {"mean": statistics.fmean(apart), "half_width": half}
        rows[name] = row
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--short", action="store_true", help="one seed, six updates")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each in a process with one thread")
    parser.add_argument("--folder", type=Path, default=Path("runs/critic"), help="finished runs")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    if options.short and options.write:
        parser.error("a short run shows nothing about learning; leave out --short to write a result")
    folder = options.folder / "short" if options.short else options.folder
    jobs = product(options.seeds[:1] if options.short else options.seeds, options.variants)
    train = partial(train_once, folder=folder, is_short=options.short)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        records = list(pool.map(train, jobs))
    comparison = compare(records)
    print(json.dumps(comparison, indent=2))
    write_result({"command": "python -m benchmarks.critic", "runs": records, "comparison": comparison}, options.write)


if __name__ == "__main__":
    main()
