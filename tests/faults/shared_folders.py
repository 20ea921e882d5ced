"""Folders that look as if other machines saw them, and processes that look as if they were on one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROCESS = """
import fcntl, sys, time
from pathlib import Path
from groupwise.store import lock as run_lease
from groupwise.system import files as file_system
from groupwise.store.lock import RunLock
from groupwise.system.errors import TrainingError
file_system.MOUNTS = Path(MOUNTS)
run_lease.BEAT_SECONDS, run_lease.WATCH_SECONDS, run_lease.SETTLE_SECONDS = 0.1, 2.0, 0.3
if MACHINE:
    run_lease._read_machine = lambda: MACHINE
    run_lease.socket.gethostname = lambda: MACHINE
    fcntl.flock = lambda descriptor, how: None  # as on a mount whose locks stay on their machine
sys.argv = ["groupwise", "train"]
lock = RunLock(Path(FOLDER))
input()
try:
    lock.acquire()
except TrainingError as error:
    print(error, flush=True)
    sys.exit()
print("held", flush=True)
input()
try:
    lock.check()
    print("still held", flush=True)
except TrainingError as error:
    print(error, flush=True)
lock.release()
"""


def list_mounts(path: Path, kind: str = "nfs4") -> Path:
    """A list in which everything is on a file system of one kind."""
    path.write_text(f"27 1 254:0 / / rw,relatime - {kind} server:/export rw,nolock\n")
    return path


@contextmanager
def writer(folder: Path, mounts: Path, machine: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that takes a folder's lock at the first line it is sent, says so, and checks it at the second."""
    settings = f"FOLDER, MOUNTS, MACHINE = {str(folder)!r}, {str(mounts)!r}, {machine!r}\n"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", settings + PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def go_on(process: subprocess.Popen[str]) -> None:
    """Send a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """What a process says next."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")
