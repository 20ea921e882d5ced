"""The cores that a process may use, how many of them are free now, and how many threads that leaves."""

from __future__ import annotations

import os
from pathlib import Path


def count_usable_cores() -> int:
    """Cores that this process may use: a container may allow fewer than there are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = Path("/sys/fs/cgroup/cpu.max")
    quota, _, period = limit.read_text().partition(" ") if limit.exists() else ("max", "", "")
    return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))


def read_load() -> float:
    """How many processes wanted a core over the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def choose_threads(max_threads: int, *, ranks: int = 1) -> int:
    """As many threads as there are free cores, no more than asked for, nor than OMP_NUM_THREADS says; at least 1.

    Args:
        max_threads: how many at most; 0 = as many as there are free cores.
        ranks: processes of one run that share the cores. Several take an equal part of all cores, whatever the load:
            each looks at another moment, at which the others are the load, and all must come to the same number.
    """
    free = count_usable_cores() - round(read_load()) if ranks == 1 else count_usable_cores() // ranks
    limits = [max(1, free), max_threads, read_thread_limit()]
    return min(limit for limit in limits if limit > 0)


def read_thread_limit() -> int:
    """What OMP_NUM_THREADS says, the first number of a list; 0 where it says nothing that is a number."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0
