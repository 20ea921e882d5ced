"""Processor seconds of this process and of the processes that it started (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def measure_own() -> float:
    """Processor seconds of all threads of this process so far."""
    return time.process_time()


def measure_children(proc: Path = Path("/proc")) -> float:
    """Processor seconds so far of all processes below this one that are alive."""
    seconds, parents = dict[int, float](), dict[int, int]()
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The name in brackets may hold anything; what follows the last bracket is split by spaces.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue  # it has ended since
        pid = int(folder.name)
        parents[pid], seconds[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
    return sum(seconds[pid] for pid in _list_below(os.getpid(), parents))


def _list_below(root: int, parents: dict[int, int]) -> list[int]:
    """Every process whose line of parents leads to the root."""
    below = [pid for pid, parent in parents.items() if parent == root]
    return below + [further for pid in below for further in _list_below(pid, parents)]
