"""A lease on a folder that other machines see: its holder writes a count into the lock's file, again and again.

Locks of the kernel (`flock`) need not reach from one machine to the next: that depends on the file system and on how it
is mounted, and a program cannot ask. So whoever finds a holder named in the file watches whether its count still grows.
Clocks of different machines are never compared.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from groupwise.core.errors import TrainingError
from groupwise.core.text.safe_text import quote_line

BEAT_SECONDS = 10.0
"""How often a holder counts."""
WATCH_SECONDS = 60.0
"""How long a count must stand still for its holder to be taken for gone: several beats of a machine that is busy."""
SETTLE_SECONDS = 1.0
"""How long whoever takes the lease waits before it looks whether somebody else took it at the same moment."""
POLL_SECONDS = 0.5
MAX_LOCK_BYTES = 4096
"""Of what a holder says about itself: the file may be anybody's."""

_log = logging.getLogger(__name__)


def describe_self() -> dict[str, Any]:
    """Who this process is. Of the command only its name: its options may hold what must not be written down."""
    program, *arguments = getattr(sys, "argv", None) or [""]
    name = Path(program).name
    command = " ".join([name, *arguments[:1]]) if name == "groupwise" else name
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
        "command": command or "python",
        "machine": _read_machine(),
        "started": _read_start(os.getpid()),
    }


def name_holder(content: bytes) -> str:
    """Who holds a lock, in words, by what stands in its file."""
    try:
        holder = json.loads(content)
        words = {name: quote_line(str(holder[name]), limit=200) for name in ("pid", "host", "since", "command")}
    except (ValueError, KeyError, TypeError, RecursionError):  # it has the lock and is about to say its name
        return "another process"
    return "process {pid} on {host} (`{command}`, since {since})".format(**words)


class RunLease:
    """The right to write into a folder by a count in the lock's file, which the holder keeps growing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._holder = describe_self() | {"token": uuid4().hex}
        self._ended = threading.Event()
        self._lost_to: str | None = None

    def take(self) -> None:
        """Write this process into the file; TrainingError where somebody else is there and counts, or was faster."""
        self._wait_for_another()
        self._write(0)
        time.sleep(SETTLE_SECONDS)
        taker = self._find_taker()
        if taker is not None:
            raise TrainingError(describe_taken(self._path.parent, taker))
        # Without a reference to whoever holds the lease: that may be forgotten, and then the lease ends.
        threading.Thread(target=self._count, name="run lease", daemon=True).start()

    def end(self) -> bool:
        """Count no more; whether the file is still this process's."""
        self._ended.set()
        return not self._is_lost()

    def check(self) -> None:
        """Raise where somebody else has taken the lease, as after this process stood still for a minute.

        The file is read each time: after standing still, the thread that counts need not be the first to go on.
        """
        if self._is_lost():
            raise TrainingError(
                f"{self._path.parent} was taken over by {self._lost_to} while this process stood still; it stops here, "
                "and what it had not written is not written"
            )

    def _wait_for_another(self) -> None:
        """Return once nobody is there, or whoever is named there has not counted for long enough."""
        before = _read(self._path)
        if not before or _is_gone(before):
            return
        name = name_holder(before)
        _log.warning(
            "%s names %s, which may run on another machine; watching for up to %g seconds whether it still does",
            self._path,
            name,
            WATCH_SECONDS,
        )
        deadline = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            now = _read(self._path)
            if not now:
                return
            if now != before:
                raise TrainingError(describe_taken(self._path.parent, name_holder(now)))

    def _count(self) -> None:
        number = 0
        while not self._ended.wait(BEAT_SECONDS):
            number += 1
            if self._is_lost() or self._ended.is_set():
                return
            with suppress(OSError):  # a disk that is away for a moment: the next beat tells
                self._write(number)

    def _is_lost(self) -> bool:
        """Whether somebody else is named in the file, or once was: whoever followed may have ended since."""
        self._lost_to = self._lost_to or self._find_taker()
        return self._lost_to is not None

    def _find_taker(self) -> str | None:
        """Who else had the file; None where this process is named in it, or where it cannot be read just now.

        This process alone removes it at the end: where it is gone, somebody has followed and ended since.
        """
        try:
            content = _read_present(self._path)
        except FileNotFoundError:
            return f"another process that has ended since ({self._path.name} is gone)"
        except OSError:
            return None
        return None if self._holder["token"].encode() in content else name_holder(content)

    def _write(self, number: int) -> None:
        # Opened anew each time: that is when file systems ask each other for what is new, and closing sends it off.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            write_content(descriptor, self._holder | {"count": number})
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def describe_taken(folder: Path, holder: str) -> str:
    """Why a folder cannot be written."""
    return f"{folder} is being written by {holder}; wait until that ends, end it, or choose another folder"


def write_content(descriptor: int, holder: dict[str, Any]) -> None:
    """Write who holds the lock in one call, so that nobody reads half of it; what was longer before is blanked."""
    content = json.dumps(holder).encode()
    length = max(len(content), os.fstat(descriptor).st_size)
    padded = content.ljust(length)
    if os.pwrite(descriptor, padded, 0) < len(padded):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read(path: Path) -> bytes | None:
    """What stands in the file; None where it is gone or cannot be read."""
    try:
        return _read_present(path)
    except OSError:
        return None


def _read_present(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.pread(descriptor, MAX_LOCK_BYTES, 0).strip()
    finally:
        os.close(descriptor)


def _is_gone(content: bytes) -> bool:
    """Whether a holder was a process that this one would see, and does not: then nobody needs to be watched."""
    try:
        holder = json.loads(content)
        machine, pid, started = holder["machine"], holder["pid"], holder["started"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    if not machine or machine != _read_machine() or not isinstance(pid, int):
        return False
    now = _read_start(pid)
    return now is None or now != started


def _read_machine() -> str | None:
    """What tells this machine since its last start, and this view of its processes, from any other; None = unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _read_start(pid: int) -> int | None:
    """When a process of this machine started, in ticks of the machine: numbers of processes come again."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
        return int(line.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
