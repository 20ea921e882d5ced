"""Processes: a command with a guardian beside it (`supervisor`), the cores that are free, what torchrun says."""

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
"""How long a command may take to end by itself."""


class GuardedProcess:
    """The processes of one command: a guardian, and what it runs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    @property
    def pid(self) -> int:
        """The guardian, and the group of processes that it leads; 0 before the start."""
        return 0 if self._process is None else self._process.pid

    def is_alive(self) -> bool:
        """Whether the guardian runs; where it has ended it is left to be waited for, so that its number stays ours."""
        if self._process is None or self._process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is None
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(min(0.02, seconds))

    def start(self, arguments: Sequence[str], variables: Mapping[str, str], log: int) -> None:
        """Start a command, with variables beside ours (of torchrun's only these); it writes to a log, an open file."""
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, *arguments],
            stdin=subprocess.PIPE,  # never written to: its end tells the guardian that we are gone
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**drop_torchrun_variables(os.environ), **variables},
            start_new_session=True,  # Ctrl-C is for us: we end what we started in order
        )

    def end(self) -> int | None:
        """Ask it to end, then kill what is left; its status. Nothing happens in a process that was forked from ours."""
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
    """A port of this machine that nobody listens at just now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


# The cores that a process may use, how many of them are free now, and how many threads that leaves.


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


# What torchrun tells the processes that it starts, by variables; their own children may not believe it too.

NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
WAYS = "start the run with torchrun, which sets all of them, or unset them for a run in one process"
PREFIXES = ("GROUP_", "ROLE_", "TORCHELASTIC_")


@dataclass(frozen=True, kw_only=True)
class StartedRank:
    """What torchrun tells a process about itself."""

    rank: int
    """Number of the process."""
    world: int
    """How many there are."""
    local_rank: int
    """Number of the process on its machine, which is the number of its GPU."""
    local_world: int
    """How many there are on its machine."""


def read_started_rank() -> StartedRank:
    """Who this process is, as torchrun says it in variables; alone where it says nothing.

    Half of what it says is refused: a process that took itself for alone would write where another one does.
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
        raise ConfigError(f"{', '.join(given)} are not whole numbers ({error}); {WAYS}") from None
    if not (0 <= local_rank <= rank < world and local_rank < local_world <= world):
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        raise ConfigError(f"{shown} do not go together: ranks are counted from 0, and are fewer than all; {WAYS}")
    return StartedRank(rank=rank, world=world, local_rank=local_rank, local_world=local_world)


def check_started_rank() -> StartedRank:
    """Who this process is; one of several that is not told where to find the others is refused before it loads."""
    started = read_started_rank()
    for name in ("MASTER_ADDR", "MASTER_PORT") if started.world > 1 else ():
        if not os.environ.get(name):
            raise ConfigError(
                f"{started.world} processes were started, but {name} does not say where they meet; {WAYS}"
            )
    return started


def drop_torchrun_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that is no rank: a server that finds these variables waits for ranks of its own.

    >>> drop_torchrun_variables({"RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True", "LANG": "C"})
    {'LANG': 'C'}
    """
    return {name: value for name, value in environment.items() if name not in NAMES and not name.startswith(PREFIXES)}
