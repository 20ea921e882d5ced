"""128 household environments with random admissible actions: in this process, and in worker processes.

    python -m benchmarks.env_workers [--workers 2] [--write benchmarks/results/env_workers.json]

Each environment runner has its own process, without a model. A round is one action in every environment. When a rollout
ends, the next task is opened, so 128 always run. Steps per second use the wall time of rounds, including opening.
Memory is the peak over rounds of all processes together: the sum of resident sets, which counts shared pages several
times, and of proportional set sizes (PSS), which counts them once. At the end a worker is killed; the time of that
round includes starting a new worker and restoring its environments. Linux only, because of /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.result_file import write_result
from groupwise.envs import Household
from groupwise.rollout.environment_runner import Host, open_host
from groupwise.rollout.worker_pool import Workers

NUM_ENVIRONMENTS = 128
LIMIT_MEGABYTES = 1000
WARM_UP = 10
"""Rounds before the clock starts: an interpreter's first calls are slower."""


class Play:
    """Rollouts of the training tasks in turn, as many at once as there are environments."""

    def __init__(self, host: Host) -> None:
        self.host, self.tasks = host, Household().task_set("train")
        self.draw, self.num_opened = Random(0), 0
        self.admissible: dict[int, tuple[str, ...]] = {}
        self.reopen(list(range(NUM_ENVIRONMENTS)))

    def reopen(self, numbers: Sequence[int]) -> None:
        self.host.close(numbers)
        chosen = {n: self.tasks[(self.num_opened + place) % len(self.tasks)] for place, n in enumerate(numbers)}
        self.num_opened += len(numbers)
        for number, shown in self.host.open(chosen).items():
            self.admissible[number] = shown.admissible  # type: ignore[assignment,union-attr]

    def round(self) -> None:
        """One action in every environment."""
        outcomes: dict[int, Any] = dict(self.host.act({n: self.draw.choice(a) for n, a in self.admissible.items()}))
        for number, outcome in outcomes.items():
            self.admissible[number] = outcome.observation.admissible
        self.reopen([number for number, outcome in outcomes.items() if outcome.ended])


def megabytes(pids: Sequence[int], field: str) -> float:
    """A line of the kernel's memory statistics, summed over processes."""
    return sum(_kilobytes(pid, field) for pid in pids) * 1024 / 1e6


def _kilobytes(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def core_seconds(pids: Sequence[int]) -> float:
    """Processor time of processes so far; other work on the machine hardly changes it."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def measure(num_workers: int, num_rounds: int) -> dict[str, Any]:
    start = time.perf_counter()
    with open_host(Household(), workers=num_workers, timeout=30.0) as host:
        started = time.perf_counter() - start
        workers = host if isinstance(host, Workers) else None
        held = workers.pids if workers else ()
        pids = [os.getpid(), *held, *map(parent_of, held)]  # each worker has a supervisor
        play = Play(host)
        for _ in range(WARM_UP):
            play.round()
        seconds = used = resident = proportional = 0.0
        for _ in range(num_rounds):
            begin, used_before = time.perf_counter(), core_seconds(pids)
            play.round()
            seconds += time.perf_counter() - begin
            used += core_seconds(pids) - used_before
            resident = max(resident, megabytes(pids, "Rss"))
            proportional = max(proportional, megabytes(pids, "Pss"))
        result = {
            "processes": len(pids),
            "start_seconds": round(started, 2),
            "steps": num_rounds * NUM_ENVIRONMENTS,
            "steps_per_second": round(num_rounds * NUM_ENVIRONMENTS / seconds),
            "core_microseconds_per_step": round(used / (num_rounds * NUM_ENVIRONMENTS) * 1e6),
            "peak_resident_megabytes": round(resident),
            "peak_proportional_megabytes": round(proportional),
        }
        return result if workers is None else result | {"replace_seconds": round(replacement(play, workers), 2)}


def replacement(play: Play, workers: Workers) -> float:
    """Seconds of a call that finds a worker killed."""
    os.kill(workers.pids[0], signal.SIGKILL)
    time.sleep(0.1)
    begin = time.perf_counter()
    play.round()
    return time.perf_counter() - begin


def in_a_fresh_interpreter(num_workers: int, num_rounds: int) -> dict[str, Any]:
    again = [sys.executable, "-m", "benchmarks.env_workers", "--measure", str(num_workers), "--rounds", str(num_rounds)]
    result: dict[str, Any] = json.loads(subprocess.run(again, check=True, capture_output=True, text=True).stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=400, help="actions in each environment")
    parser.add_argument("--measure", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options.rounds)))
        return
    busy = os.getloadavg()[0]
    hosts = {
        "in_process": in_a_fresh_interpreter(0, options.rounds),
        f"{options.workers}_workers": in_a_fresh_interpreter(options.workers, options.rounds),
    }
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.env_workers --workers {options.workers} --rounds {options.rounds}",
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
        "load_average_before": round(busy, 1),
        "environments": NUM_ENVIRONMENTS,
        **hosts,
        "limit_megabytes": LIMIT_MEGABYTES,
        "within_limit": all(host["peak_resident_megabytes"] <= LIMIT_MEGABYTES for host in hosts.values()),
    }
    print(json.dumps(result, indent=2))
    write_result(result, options.write)


if __name__ == "__main__":
    main()
