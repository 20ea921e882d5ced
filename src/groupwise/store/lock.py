"""A lock on a folder, so that only one process writes there. The kernel releases it when the process ends.

The lock is `flock` on a small file in the folder, in which the holder describes itself. If the holder is killed, the
file stays, blocks nobody, and is removed by the next holder. A forked child releases the lock at once, and a new
interpreter never has it.

If other machines can see the folder, or the file system has no `flock`, a lease is taken too: see `RunLease`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import socket
import stat
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from groupwise.store.run_folder import LOCK
from groupwise.system.errors import FileError, TrainingError
from groupwise.system.files import is_shared_with_machines
from groupwise.system.text import quote_line

HELD = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}

_log = logging.getLogger(__name__)
_live: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """The right to write into a folder, from `acquire` to `release`, or to the end of the process.

    A draft is a folder that only its writer needs: it is emptied when it is locked, and removed if its writer fails.
    """

    def __init__(self, folder: Path, *, is_draft: bool = False) -> None:
        self.folder = folder
        self._is_draft = is_draft
        self._made_folder = False
        self._let_go: weakref.finalize[[int, Path, RunLease | None], RunLock] | None = None
        self._lease: RunLease | None = None
        self._descriptor = -1

    @property
    def is_held(self) -> bool:
        return self._let_go is not None

    def acquire(self) -> None:
        """Take the lock, and make the folder if it is missing; a TrainingError names another holder.

        Nothing happens if this object has the lock already.
        """
        if self.is_held:
            return
        path, made_folder = self.folder / LOCK, False
        try:
            try:
                self.folder.mkdir(parents=True)
                made_folder = True
            except FileExistsError:
                if not self.folder.is_dir():
                    raise
            descriptor, lease = _lock(path)
        except OSError as error:
            if made_folder:
                with suppress(OSError):
                    self.folder.rmdir()
            raise FileError(
                f"{self.folder} cannot be written ({error.strerror}); use a folder that you may write to, on a disk "
                "with space"
            ) from None
        self._descriptor, self._lease, self._made_folder = descriptor, lease, made_folder
        self._let_go = weakref.finalize(self, _remove_and_close, descriptor, path, lease)
        _live.add(self)
        for left_behind in self.folder.iterdir() if self._is_draft else ():  # files of a writer that was killed
            if left_behind.is_dir():
                shutil.rmtree(left_behind, ignore_errors=True)
            elif left_behind.name != LOCK:
                left_behind.unlink()

    def release(self) -> None:
        """Release the lock, if this object has it."""
        if self._let_go is not None:
            self._let_go()
            self._let_go = None
            _live.discard(self)

    def check(self) -> None:
        """Raise if another machine has taken the folder over. Call it before each write."""
        if self._lease is not None:
            self._lease.check()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock for a block of code; if it was held before, it stays held."""
        was_held = self.is_held
        self.acquire()
        try:
            yield
        finally:
            if not was_held:
                self.release()

    @contextmanager
    def release_on_failure(self) -> Iterator[None]:
        """Release the lock if the block fails, and remove a folder that the lock made."""
        try:
            yield
        except BaseException:
            # Once another machine has taken over, the folder belongs to it.
            is_ours = self.is_held and (self._lease is None or self._lease.end())
            if is_ours and (self._made_folder or self._is_draft):
                shutil.rmtree(self.folder, ignore_errors=True)
            self.release()
            raise

    def forget(self) -> None:
        """Close the file of a lock that belongs to the parent of this forked process."""
        if self._let_go is not None:
            self._let_go.detach()
            self._let_go = None
            with suppress(OSError):
                os.close(self._descriptor)


def _forget_in_child() -> None:
    for lock in list(_live):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _lock(path: Path) -> tuple[int, RunLease | None]:
    """The descriptor of the locked file, and the lease if one is needed."""
    while True:
        # O_NOFOLLOW: through a link in a received folder, a file elsewhere would be overwritten.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, f"{path.name} is no plain file")
            fault = _flock(descriptor, path)
            if not _is_at(descriptor, path):  # the last holder has removed it meanwhile: this file locks nothing
                os.close(descriptor)
                continue
            if fault is not None:
                _log.warning(
                    "%s cannot be locked (%s); instead, a count in %s is written every %g seconds: start only one "
                    "process at a time",
                    *(path.parent, fault, path.name, BEAT_SECONDS),
                )
            if fault is not None or is_shared_with_machines(path.parent):
                lease = RunLease(path)
                lease.take()
                return descriptor, lease
            try:
                _write_holder(descriptor, describe_self())
            except OSError:
                _remove(descriptor, path)
                raise
            return descriptor, None
        except BaseException:
            os.close(descriptor)
            raise


def _flock(descriptor: int, path: Path) -> str | None:
    """Lock an open file; a TrainingError if it is locked. Returns why there are no such locks here, or None."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return "this system has no flock"
    except OSError as error:
        if error.errno in HELD:
            try:
                holder = name_holder(os.pread(descriptor, MAX_LOCK_BYTES, 0))
            except OSError:
                holder = "another process"
            raise TrainingError(describe_taken(path.parent, holder)) from None
        if error.errno not in UNSUPPORTED:
            raise
        return error.strerror or "no reason given"
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove(descriptor: int, path: Path) -> None:
    with suppress(OSError):
        if _is_at(descriptor, path):
            path.unlink()


def _remove_and_close(descriptor: int, path: Path, lease: RunLease | None) -> None:
    """Release a lock. The file goes first: after that no process can mistake it for a held lock."""
    if lease is None or lease.end():
        _remove(descriptor, path)
    with suppress(OSError):
        os.close(descriptor)


# A lease on a folder that other machines can see: the holder keeps writing a growing count into the lock's file.
#
# `flock` may not work between machines: this depends on the file system and how it is mounted, and a program cannot
# find out. So a process that finds a holder in the file watches whether its count still grows. Clocks of different
# machines are never compared.

BEAT_SECONDS = 10.0
"""How often a holder writes its count."""
WATCH_SECONDS = 60.0
"""If a count stands still for so long, its holder counts as gone. These are several beats of a busy machine."""
SETTLE_SECONDS = 1.0
"""How long a process waits after it took the lease, to see whether another one took it at the same moment."""
POLL_SECONDS = 0.5
MAX_LOCK_BYTES = 4096


def describe_self() -> dict[str, Any]:
    """This process in the lock's file. Of the command only its name: its options may hold secrets."""
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
    """The holder of a lock in words, from the content of its file."""
    try:
        holder = json.loads(content)
        words = {name: quote_line(str(holder[name]), limit=200) for name in ("pid", "host", "since", "command")}
    except (ValueError, KeyError, TypeError, RecursionError):  # for example a holder that has not written yet
        return "another process"
    return "process {pid} on {host} (`{command}`, since {since})".format(**words)


class RunLease:
    """The right to write into a folder, by a growing count in the lock's file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._holder = describe_self() | {"token": uuid4().hex}
        self._ended = threading.Event()
        self._lost_to: str | None = None

    def take(self) -> None:
        """Write this process into the file; a TrainingError if another process counts there, or was faster.

        A holder in the file is watched first: the lease is free if its process is gone, or if it stops counting.
        """
        before = _read(self._path)
        if before and not _is_gone(before):
            _log.warning(
                "%s names %s, which may run on another machine; checking for up to %g seconds whether it still runs",
                self._path,
                name_holder(before),
                WATCH_SECONDS,
            )
            deadline = time.monotonic() + WATCH_SECONDS
            while time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                now = _read(self._path)
                if not now:
                    break
                if now != before:
                    raise TrainingError(describe_taken(self._path.parent, name_holder(now)))
        self._write(0)
        time.sleep(SETTLE_SECONDS)
        taker = self._find_taker()
        if taker is not None:
            raise TrainingError(describe_taken(self._path.parent, taker))
        # The thread has no reference to the RunLock: if that is garbage collected, the lease ends.
        threading.Thread(target=self._count, name="run lease", daemon=True).start()

    def end(self) -> bool:
        """Stop counting; returns whether the file still belongs to this process."""
        self._ended.set()
        return not self._is_lost()

    def check(self) -> None:
        """Raise if another process has taken the lease, for example after this process was suspended for a minute.

        The file is read each time: after a suspension, the counting thread may not be the first to continue.
        """
        if self._is_lost():
            raise TrainingError(
                f"{self._path.parent} was taken over by {self._lost_to} while this process was suspended; this process "
                "stops, and writes nothing more"
            )

    def _count(self) -> None:
        number = 0
        while not self._ended.wait(BEAT_SECONDS):
            number += 1
            if self._is_lost() or self._ended.is_set():
                return
            with suppress(OSError):  # the disk may be away for a moment: the next beat tries again
                self._write(number)

    def _is_lost(self) -> bool:
        """Whether another process is named in the file, or once was: it may have ended since."""
        self._lost_to = self._lost_to or self._find_taker()
        return self._lost_to is not None

    def _find_taker(self) -> str | None:
        """Who else has or had the file; None if it names this process, or cannot be read just now.

        Only its holder removes the file. If it is gone, another process took it over and has ended.
        """
        try:
            content = _read_present(self._path)
        except FileNotFoundError:
            return f"another process that has ended since ({self._path.name} is gone)"
        except OSError:
            return None
        return None if self._holder["token"].encode() in content else name_holder(content)

    def _write(self, number: int) -> None:
        # Network file systems fetch changes when a file is opened and send them when it is closed.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _write_holder(descriptor, self._holder | {"count": number})
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def describe_taken(folder: Path, holder: str) -> str:
    return f"{folder} is being written by {holder}; wait until that ends, end it, or choose another folder"


def _write_holder(descriptor: int, holder: dict[str, Any]) -> None:
    """Write the holder in one call, so that readers see all of it; spaces cover a longer content."""
    content = json.dumps(holder).encode()
    length = max(len(content), os.fstat(descriptor).st_size)
    padded = content.ljust(length)
    if os.pwrite(descriptor, padded, 0) < len(padded):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read_present(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.pread(descriptor, MAX_LOCK_BYTES, 0).strip()
    finally:
        os.close(descriptor)


def _read(path: Path) -> bytes | None:
    """The content of the file; None if it is gone or cannot be read."""
    try:
        return _read_present(path)
    except OSError:
        return None


def _is_gone(content: bytes) -> bool:
    """Whether a holder was a process of this machine that has ended; then it need not be watched."""
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
    """An id of this machine since its last start and of this process namespace; None = unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _read_start(pid: int) -> int | None:
    """When a process of this machine started, in ticks: process ids are used again."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
        return int(line.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
