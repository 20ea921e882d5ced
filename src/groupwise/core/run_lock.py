"""One writer: a lock on a folder, which the kernel takes back when the process that holds it ends, however it ends.

The lock is `flock` on a small file in the folder, in which the holder says who it is. The file is there as long as the
lock is held; after a holder that was killed it stays behind, holds nobody up, and goes with the next one. A child that
is forked while the lock is held lets go of it at once, and an interpreter that is started anew never has it.

Where other machines see the folder too, or the file system has no `flock`, a lease is taken as well: see `run_lease`.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from groupwise.core.errors import FileError, TrainingError
from groupwise.core.file_system import find_file_system
from groupwise.core.run_lease import (
    BEAT_SECONDS,
    MAX_LOCK_BYTES,
    RunLease,
    describe_self,
    describe_taken,
    name_holder,
    write_content,
)
from groupwise.core.run_paths import LOCK

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
            made_folder = _make(self.folder)
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
        if self._is_draft:
            _empty(self.folder)

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


def _make(folder: Path) -> bool:
    """Make a folder; whether it was not there."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    return True


def _empty(folder: Path) -> None:
    """Remove what a writer that was killed has left behind."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink()


def _lock(path: Path) -> tuple[int, RunLease | None]:
    """The descriptor of the locked file, which closes when another program starts, and the lease if one is needed."""
    while True:
        # A link would lead out of the folder, and whoever sent it would have another file written over.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, f"{path.name} is no plain file")
            has_flock = _flock(descriptor, path)
            if not _is_at(descriptor, path):  # whoever held it has removed it in the meantime: that file locks nothing
                os.close(descriptor)
                continue
            return descriptor, _say_holder(descriptor, path, needs_lease=not has_flock)
        except BaseException:
            os.close(descriptor)
            raise


def _flock(descriptor: int, path: Path) -> bool:
    """Lock an open file, or raise where it is locked; False where this system or file system has no such locks."""
    try:
        import fcntl
    except ImportError:  # no such thing as flock on this system
        return _warn_unlocked(path, "this system has no flock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:
            raise TrainingError(describe_taken(path.parent, _name_holder(descriptor))) from None
        if error.errno not in UNSUPPORTED:
            raise
        return _warn_unlocked(path, error.strerror or "no reason given")
    return True


def _warn_unlocked(path: Path, reason: str) -> bool:
    _log.warning(
        "%s cannot be locked (%s); a count in %s, written every %g seconds, keeps others out instead: start only one "
        "process at a time",
        path.parent,
        reason,
        path.name,
        BEAT_SECONDS,
    )
    return False


def _say_holder(descriptor: int, path: Path, *, needs_lease: bool) -> RunLease | None:
    """Say who holds the lock; by a lease where the lock alone does not keep every other process out."""
    if needs_lease or find_file_system(path.parent).is_shared:
        lease = RunLease(path)
        lease.take()
        return lease
    try:
        write_content(descriptor, describe_self())
    except OSError:
        _remove(descriptor, path)
        raise
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _name_holder(descriptor: int) -> str:
    """Who holds the lock, in words."""
    try:
        return name_holder(os.pread(descriptor, MAX_LOCK_BYTES, 0))
    except OSError:
        return "another process"


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


def _forget_in_child() -> None:
    for lock in list(_live):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
