"""Time to find the past rollouts of a task among a million.

    python -m benchmarks.history_index

fills the index of a journal in a temporary folder with a million rollouts, once of 20,000 tasks and once of 64 (tasks
that repeat often, with 15,600 past rollouts each). It runs the queries of replay and reflection for random tasks, and
writes medians and 99th percentiles to `benchmarks/results/history_index.json`.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths

RESULT = Path(__file__).parent / "results" / "history_index.json"
NUM_STATES = 8
ROLLOUTS_EACH = 8
PER_UPDATE = 64 * ROLLOUTS_EACH
RING = 64


def rows(num: int, tasks: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Index entries of `num` rollouts: eight per task, 64 tasks per update, all tasks in turn."""
    draws = random.Random(seed)
    rewards = np.zeros(NUM_STATES).tobytes()
    for entry in range(num):
        group, rollout = divmod(entry, ROLLOUTS_EACH)
        number, task = entry // PER_UPDATE + 1, f"bench-train-{group % tasks:016x}"
        states = draws.randbytes(8 * NUM_STATES)
        yield task, number, rollout, number - 1, "fresh", float(draws.random() < 0.2), draws.random(), states, rewards


def fill(path: Path, num: int, tasks: int) -> None:
    """Write the entries as a journal would, but all at once."""
    Journal(path).close()
    database = sqlite3.connect(path)
    with database:
        database.executemany(f"INSERT INTO history VALUES ({', '.join('?' * 9)})", rows(num, tasks, seed=0))
    database.close()


def time_question(ask: Callable[[str], object], tasks: Sequence[str]) -> dict[str, float]:
    """Milliseconds of a query, for each task in turn."""
    taken = []
    for task in tasks:
        began = time.perf_counter()
        ask(task)
        taken.append(1e3 * (time.perf_counter() - began))
    return {
        "median_ms": round(float(np.median(taken)), 4),
        "p99_ms": round(float(np.percentile(taken, 99)), 4),
        "share_under_1_ms": round(sum(each < 1 for each in taken) / len(taken), 4),
    }


def measure(path: Path, tasks: int, questions: int, last: int) -> dict[str, dict[str, float]]:
    """The cost of each query; `last` is the newest update."""
    draws = random.Random(1)
    drawn = [f"bench-train-{draws.randrange(tasks):016x}" for _ in range(questions)]
    with Journal(path) as journal:
        past_rollouts = journal.past_rollouts
        return {
            "recent": time_question(lambda task: past_rollouts.recent(task, max_rollouts=RING), drawn),
            "recent_of_8_versions": time_question(
                lambda task: past_rollouts.recent(task, max_rollouts=RING, since=last - 9), drawn
            ),
            "mean_score": time_question(lambda task: past_rollouts.mean_score(task, max_rollouts=RING), drawn),
            "newest_of_any_task": time_question(
                lambda _: past_rollouts.newest(max_rollouts=4096, after=last - 4), drawn[:100]
            ),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000, help="rollouts in the index (default: 1000000)")
    parser.add_argument("--tasks", type=int, nargs="+", default=[20_000, 64], help="tasks that they are at")
    parser.add_argument("--questions", type=int, default=5_000, help="tasks that are asked for (default: 5000)")
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {
        "rollouts": options.rollouts,
        "questions": options.questions,
        "sqlite": sqlite3.sqlite_version,
        "python": platform.python_version(),
    }
    for tasks in options.tasks:
        with TemporaryDirectory() as folder:
            path = RunPaths(Path(folder)).journal
            fill(path, options.rollouts, tasks)
            last = (options.rollouts - 1) // PER_UPDATE + 1
            result[f"{tasks}_tasks"] = measure(path, tasks, options.questions, last=last)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
