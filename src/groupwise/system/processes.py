"""Processes: a command with a supervisor process, free cores and memory, and torchrun's variables."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from groupwise.system import supervisor
from groupwise.system.errors import ConfigError

STOP_SECONDS = 15.0
"""How long a command may take to end after it was asked to."""


class GuardedProcess:
    """The processes of one command: its supervisor, and the command's own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    @property
    def pid(self) -> int:
        """Process id of the supervisor, which is also the id of the process group; 0 before the start."""
        return 0 if self._process is None else self._process.pid

    def is_alive(self) -> bool:
        """Whether the supervisor runs. An ended one is not reaped here, so its process id is not used again."""
        if self._process is None or self._process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is None
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(min(0.02, seconds))

    def start(self, arguments: Sequence[str], variables: Mapping[str, str], log: int) -> None:
        """Start a command that writes to `log`, an open file. `variables` replace torchrun's and are added to ours."""
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, *arguments],
            stdin=subprocess.PIPE,  # never written to: its end tells the supervisor that this process has ended
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**drop_torchrun_variables(os.environ), **variables},
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the others in order
        )

    def end(self) -> int | None:
        """Ask it to end, kill the rest of its group, and return its status. Does nothing in a forked process."""
        process = self._process
        if process is None or process.returncode is not None or self._owner != os.getpid():
            return None if process is None else process.returncode
        if self.is_alive():
            process.terminate()
            self.wait(STOP_SECONDS)
        with suppress(ProcessLookupError, PermissionError):  # macOS has the latter for a group of zombies
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        return status


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def count_usable_cores() -> int:
    """The cores that this process may use, within the limit of a container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = Path("/sys/fs/cgroup/cpu.max")
    quota, _, period = limit.read_text().partition(" ") if limit.exists() else ("max", "", "")
    return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))


def read_load() -> float:
    """The mean number of processes that wanted a core during the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def choose_threads(max_threads: int, *, ranks: int = 1) -> int:
    """One thread per free core, at most `max_threads` and OMP_NUM_THREADS, at least 1.

    Args:
        max_threads: 0 = no limit.
        ranks: processes of one run that share the cores. Several ranks take equal parts of all cores, whatever the
            load: each rank is load for the others, and all must choose the same number.
    """
    free = count_usable_cores() - round(read_load()) if ranks == 1 else count_usable_cores() // ranks
    limits = [max(1, free), max_threads, read_thread_limit()]
    return min(limit for limit in limits if limit > 0)


def read_thread_limit() -> int:
    """The first number in OMP_NUM_THREADS; 0 = none."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


# The free memory of this process, and the error for a model that does not fit into it.

MEMINFO = Path("/proc/meminfo")
LIMIT = Path("/sys/fs/cgroup/memory.max")
UNITS = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"))


def read_free_memory() -> float | None:
    """Free bytes, within the limit of a container; None = unknown."""
    if not MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    free = float(lines["MemAvailable"].split()[0]) * 1024
    limit = LIMIT.read_text().strip() if LIMIT.exists() else "max"
    return free if limit == "max" else min(free, float(limit))


def check_fits(needed: Mapping[str, float], available: float, *, remedy: str) -> None:
    """Raise a ConfigError if more bytes are needed, in total, than are available; `remedy` says what to change."""
    if sum(needed.values()) <= available:
        return
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in needed.items() if size)
    raise ConfigError(
        f"model: at least {format_bytes(sum(needed.values()))} of memory are needed ({parts}), but "
        f"{format_bytes(available)} are available; {remedy}"
    )


def format_bytes(size: float) -> str:
    """A number of bytes as text.

    >>> format_bytes(512), format_bytes(1.5e6), format_bytes(23.04e9), format_bytes(2.6e15)
    ('0.5 kB', '1.5 MB', '23.0 GB', '2.6 PB')
    """
    unit, name = next((known for known in UNITS if size >= known[0]), (1e3, "kB"))
    return f"{size / unit:.1f} {name}"


# The environment variables that torchrun sets for its processes. Their child processes must not see them.

NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
WAYS = "start the run with torchrun, which sets all of them, or unset them for a run in one process"
PREFIXES = ("GROUP_", "ROLE_", "TORCHELASTIC_")


@dataclass(frozen=True, kw_only=True)
class StartedRank:
    """A process of torchrun."""

    rank: int
    """Number of the process."""
    world: int
    """Number of processes."""
    local_rank: int
    """Number of the process on its machine, which is the number of its GPU."""
    local_world: int
    """Number of processes on its machine."""


def read_started_rank() -> StartedRank:
    """This process as torchrun's variables describe it; without them, the only process of the run.

    If only some variables are set, this is an error: two processes could write into the same folder.
    """
    given = {name: os.environ[name] for name in NUMBERS if name in os.environ}
    if not given:
        return StartedRank(rank=0, world=1, local_rank=0, local_world=1)
    for name in NUMBERS:
        if name not in given and name != "LOCAL_WORLD_SIZE":
            raise ConfigError(
                f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} set, but {name} is not; {WAYS}"
            )
    try:
        rank, world, local_rank = (int(given[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        local_world = int(given.get("LOCAL_WORLD_SIZE", local_rank + 1))
    except ValueError as error:
        raise ConfigError(f"{', '.join(given)} are not integers ({error}); {WAYS}") from None
    if not (0 <= local_rank <= rank < world and local_rank < local_world <= world):
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        raise ConfigError(
            f"{shown} contradict each other: RANK must be below WORLD_SIZE, and LOCAL_RANK below LOCAL_WORLD_SIZE; "
            f"{WAYS}"
        )
    return StartedRank(rank=rank, world=world, local_rank=local_rank, local_world=local_world)


def check_started_rank() -> StartedRank:
    """As `read_started_rank`; an error if there are several processes and the address of the first is missing."""
    started = read_started_rank()
    for name in ("MASTER_ADDR", "MASTER_PORT") if started.world > 1 else ():
        if not os.environ.get(name):
            raise ConfigError(
                f"{started.world} processes were started, but {name} is not set, so they cannot connect; {WAYS}"
            )
    return started


def drop_torchrun_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without torchrun's variables, for a server: with them it would wait for other ranks.

    >>> drop_torchrun_variables({"RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True", "LANG": "C"})
    {'LANG': 'C'}
    """
    return {name: value for name, value in environment.items() if name not in NAMES and not name.startswith(PREFIXES)}
