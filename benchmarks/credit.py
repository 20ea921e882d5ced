"""Speed of advantages: HGPO (depth 4), GiGPO and GRPO on tables of 1e3 to 1e6 steps, compared with loops.

    python -m benchmarks.credit [--write benchmarks/results/credit.json]

Two alternatives are timed for HGPO at 50,000 steps. They alternate with ours; medians are reported:

- the *literal loop* (`tests/oracles/history.py`): for each step and level, list the steps with equal history. Its time
  is quadratic in the steps.
- the *clustered loop* (`tests/oracles/clustered_hgpo.py`): one pass hashes state tuples into clusters, then a loop runs
  over clusters, as in the released implementation.

The table (sorting shuffled rows by identity) and its advantages are timed separately by size; in the comparison, "ours"
is the sum of both. Everything runs in one thread. Times are processor seconds, so other work on the machine does not
count. The literal loop takes about six minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_file import write_result
from groupwise import StepTable, methods
from tests.oracles import clustered_hgpo, history

SIZES = (1_000, 10_000, 50_000, 100_000, 1_000_000)
METHODS = {"grpo": methods.grpo(), "gigpo": methods.gigpo(), "hgpo": methods.hgpo(depth=4)}
STEPS_PER_ROLLOUT, ROLLOUTS_PER_TASK, STATES_PER_TASK = 25, 8, 30


def columns(num_steps: int, seed: int = 0) -> dict[str, Any]:
    """Agents that walk between 30 states of a task, 8 rollouts of 25 steps, reward 10 or 0 at the end; shuffled."""
    draw = np.random.default_rng(seed)
    rollout = np.arange(num_steps) // STEPS_PER_ROLLOUT
    index = np.arange(num_steps) % STEPS_PER_ROLLOUT
    # A walk, not independent draws: neighbours share histories, as rollouts at one task do.
    state = np.where(index == 0, 0, draw.integers(0, 4, size=num_steps))
    state = (np.cumsum(state) - np.cumsum(state)[rollout * STEPS_PER_ROLLOUT]) % STATES_PER_TASK
    won = draw.integers(0, 2, size=rollout[-1] + 1) * 10.0
    reward = np.where(index == STEPS_PER_ROLLOUT - 1, won[rollout], 0.0)
    order = draw.permutation(num_steps)
    table = {"task": rollout // ROLLOUTS_PER_TASK, "rollout": rollout, "step": index, "state": state, "reward": reward}
    return {name: column[order] for name, column in table.items()}


def seconds(function: Any, *args: Any) -> float:
    start = time.process_time()
    function(*args)
    return time.process_time() - start


def ours(name: str, table_columns: dict[str, Any]) -> np.ndarray:
    return METHODS[name].advantage(StepTable.from_columns(**table_columns)).values


def growth(repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds by size: building the table from shuffled columns, and the advantages of each method."""
    medians: dict[str, dict[str, float]] = {name: {} for name in ("table", *METHODS)}
    for size in SIZES:
        data = columns(size)
        times: dict[str, list[float]] = {name: [] for name in medians}
        for _ in range(repeats):
            for name, algorithm in METHODS.items():
                start = time.process_time()
                table = StepTable.from_columns(**data)  # anew each time: a table remembers what it was asked
                times["table"].append(time.process_time() - start)
                times[name].append(seconds(algorithm.advantage, table))
        for name in medians:
            medians[name][str(size)] = statistics.median(times[name])
    return medians


def against_loops(size: int, repeats: int) -> dict[str, float]:
    """HGPO and both loops on the same rows; their advantages are compared with ours."""
    data = columns(size)
    plain = {name: column.tolist() for name, column in data.items()}
    rows = [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]
    expected = ours("hgpo", data)
    times: dict[str, list[float]] = {"ours": [], "clustered": []}
    for _ in range(repeats):
        times["ours"].append(seconds(ours, "hgpo", data))
        times["clustered"].append(seconds(partial(clustered_hgpo.hgpo_by_clusters, rows, depth=4)))
    medians = {name: statistics.median(listed) for name, listed in times.items()}
    start = time.process_time()
    values, _ = history.hgpo(rows, depth=4)  # once: minutes, and so far from ours that a median would say no more
    medians["literal"] = time.process_time() - start
    assert np.allclose(values, expected, rtol=1e-9, atol=1e-9), "the literal loop disagrees"
    return medians | {
        "times_faster_than_literal": medians["literal"] / medians["ours"],
        "times_faster_than_clustered": medians["clustered"] / medians["ours"],
    }


def peak_memory_mb() -> float:
    """Peak resident memory of a fresh process that computes HGPO for 1,000,000 steps."""
    code = (
        "import resource, benchmarks.credit as b;"
        "b.ours('hgpo', b.columns(1_000_000));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()

    table = growth(options.repeats)
    loops = against_loops(50_000, options.repeats)
    result = {
        "command": f"python -m benchmarks.credit --repeats {options.repeats}",
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python "
        f"{platform.python_version()}, numpy {np.__version__}",
        "seconds": table,
        "hgpo_50k": loops,
        "growth_100k_to_1m": {name: times["1000000"] / times["100000"] for name, times in table.items()},
        "peak_memory_mb_1m_steps": peak_memory_mb(),
    }
    print(json.dumps(result, indent=2))
    write_result(result, options.write)


if __name__ == "__main__":
    main()
