"""One writer: a lock on a folder, which the kernel takes back when the process that holds it ends, however it ends.

The lock is `flock` on a small file in the folder, in which the holder says who it is. The file is there as long as the
lock is held; after a holder that was killed it stays behind, holds nobody up, and goes with the next one. A child that
is forked while the lock is held lets go of it at once, and an interpreter that is started anew never has it.

Where other machines see the folder too, or the file system has no `flock`, a lease is taken as well: see `RunLease`.
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
from groupwise.system.files import find_file_system
from groupwise.system.text import quote_line

HELD = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}

_log = logging.getLogger(__name__)
_live: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """The right to write into a folder, from `acquire` to `release`, or to the end of the process.

    A draft is a folder that only its writer needs: it is emptied when it is locked, and goes where its writer fails.
    """

    def __init__(self, folder: Path, *, is_draft: bool = False) -> None:
        self.folder = folder
        """What is locked."""
        self._is_draft = is_draft
        self._made_folder = False
        self._let_go: weakref.finalize[[int, Path, RunLease | None], RunLock] | None = None
        self._lease: RunLease | None = None
        self._descriptor = -1

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._let_go is not None

    def acquire(self) -> None:
        """Take the lock, making the folder where there is none; TrainingError that names the holder where it is taken.

        Nothing happens where this object has it already.
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
                f"{self.folder} cannot be written ({error.strerror}); give a folder that you may write to, on a disk "
                "with space"
            ) from None
        self._descriptor, self._lease, self._made_folder = descriptor, lease, made_folder
        self._let_go = weakref.finalize(self, _remove_and_close, descriptor, path, lease)
        _live.add(self)
        for left_behind in self.folder.iterdir() if self._is_draft else ():  # by a writer that was killed
            if left_behind.is_dir():
                shutil.rmtree(left_behind, ignore_errors=True)
            elif left_behind.name != LOCK:
                left_behind.unlink()

    def release(self) -> None:
        """Give the lock back; nothing happens where this object does not have it."""
        if self._let_go is not None:
            self._let_go()
            self._let_go = None
            _live.discard(self)

    def check(self) -> None:
        """Raise where another machine has taken the folder over meanwhile; to be called before something is written."""
        if self._lease is not None:
            self._lease.check()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock for a while; it stays with who had it before."""
        was_held = self.is_held
        self.acquire()
        try:
            yield
        finally:
            if not was_held:
                self.release()

    @contextmanager
    def release_on_failure(self) -> Iterator[None]:
        """Give the lock back where what follows fails, and leave no folder behind that the lock made."""
        try:
            yield
        except BaseException:
            # Only the holder may, and only while no other machine has followed it: it is somebody else's then.
            is_ours = self.is_held and (self._lease is None or self._lease.end())
            if is_ours and (self._made_folder or self._is_draft):
                shutil.rmtree(self.folder, ignore_errors=True)
            self.release()
            raise

    def forget(self) -> None:
        """Close the file of a lock that belongs to the process that this one was forked from."""
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
    """The descriptor of the locked file, which closes when another program starts, and the lease if one is needed."""
    while True:
        # A link would lead out of the folder, and whoever sent it would have another file written over.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, f"{path.name} is no plain file")
            fault = _flock(descriptor, path)
            if not _is_at(descriptor, path):  # whoever held it has removed it in the meantime: that file locks nothing
                os.close(descriptor)
                continue
            if fault is not None:
                _log.warning(
                    "%s cannot be locked (%s); a count in %s, written every %g seconds, keeps others out instead: "
                    "start only one process at a time",
                    *(path.parent, fault, path.name, BEAT_SECONDS),
                )
            if fault is not None or find_file_system(path.parent).is_shared:
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
    """Lock an open file, or raise where it is locked; why this system or file system has no such locks, or None."""
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
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove(descriptor: int, path: Path) -> None:
    with suppress(OSError):
        if _is_at(descriptor, path):
            path.unlink()


def _remove_and_close(descriptor: int, path: Path, lease: RunLease | None) -> None:
    """Let go of a lock: first the file, so that nobody can take it for one that is held."""
    if lease is None or lease.end():
        _remove(descriptor, path)
    with suppress(OSError):
        os.close(descriptor)


# A lease on a folder that other machines see: its holder writes a count into the lock's file, again and again.
#
# Locks of the kernel (`flock`) need not reach from one machine to the next: that depends on the file system and on how
# it is mounted, and a program cannot ask. So whoever finds a holder named in the file watches whether its count still
# grows. Clocks of different machines are never compared.

BEAT_SECONDS = 10.0
"""How often a holder counts."""
WATCH_SECONDS = 60.0
"""How long a count must stand still for its holder to be taken for gone: several beats of a machine that is busy."""
SETTLE_SECONDS = 1.0
"""How long whoever takes the lease waits before it looks whether somebody else took it at the same moment."""
POLL_SECONDS = 0.5
MAX_LOCK_BYTES = 4096
"""Of what a holder says about itself: the file may be anybody's."""


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
            _write_holder(descriptor, self._holder | {"count": number})
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def describe_taken(folder: Path, holder: str) -> str:
    """Why a folder cannot be written."""
    return f"{folder} is being written by {holder}; wait until that ends, end it, or choose another folder"


def _write_holder(descriptor: int, holder: dict[str, Any]) -> None:
    """Write who holds the lock in one call, so that nobody reads half of it; what was longer before is blanked."""
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
    """What stands in the file; None where it is gone or cannot be read."""
    try:
        return _read_present(path)
    except OSError:
        return None


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
