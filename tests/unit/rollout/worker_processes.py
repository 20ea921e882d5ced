"""Kill a worker from outside, and see whether a process is gone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def has_ended(pid: int, within: float = 5.0) -> bool:
    """Whether a process is gone; an orphan that nobody has buried yet counts as gone."""
    last = time.monotonic() + within
    while time.monotonic() < last:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def is_gone(pid: int) -> bool:
    """Whether nothing is left of a child, not even a zombie."""
    return not Path(f"/proc/{pid}").exists()


def kill(pid: int) -> None:
    """Kill a worker from outside and wait until it is dead."""
    os.kill(pid, signal.SIGKILL)
    assert has_ended(pid)
