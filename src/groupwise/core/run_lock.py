"""One writer: a lock on a folder, which the kernel takes back when the process that holds it ends, however it ends.

The lock is `flock` on a small file in the folder, in which the holder says who it is. The file is there as long as the
lock is held; after a holder that was killed it stays behind, holds nobody up, and goes with the next one. A child that
is forked while the lock is held lets go of it at once, and an interpreter that is started anew never has it.
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
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from groupwise.core.errors import FileError, TrainingError
from groupwise.core.run_paths import LOCK
from groupwise.core.text.safe_text import quote_line

MAX_LOCK_BYTES = 4096
"""Of what a holder says about itself: the file may be anybody's."""
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
        self._let_go: weakref.finalize[[int, Path], RunLock] | None = None
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
            descriptor = _lock(path)
        except OSError as error:
            if made_folder:
                with suppress(OSError):
                    self.folder.rmdir()
            raise FileError(
                f"{self.folder} cannot be written ({error.strerror}); give a folder that you may write to, on a disk "
                "with space"
            ) from None
        self._descriptor, self._made_folder = descriptor, made_folder
        self._let_go = weakref.finalize(self, _remove_and_close, descriptor, path)
        _live.add(self)
        if self._is_draft:
            _empty(self.folder)

    def release(self) -> None:
        """Give the lock back; nothing happens where this object does not have it."""
        if self._let_go is not None:
            self._let_go()
            self._let_go = None
            _live.discard(self)

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
            # Only the holder may: it could be somebody else's by now.
            if self.is_held and (self._made_folder or self._is_draft):
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


def _lock(path: Path) -> int:
    """The descriptor of the locked file; it closes when another program is started."""
    while True:
        # A link would lead out of the folder, and whoever sent it would have another file written over.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, f"{path.name} is no plain file")
            _flock(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        if not _is_at(descriptor, path):  # whoever held it has removed it in the meantime: that file locks nothing
            os.close(descriptor)
            continue
        try:
            _write_holder(descriptor)
        except OSError:
            _remove_and_close(descriptor, path)
            raise
        return descriptor


def _flock(descriptor: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such thing as flock on this system
        return _warn_unlocked(path, "this system has no flock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:
            raise TrainingError(
                f"{path.parent} is being written by {_name_holder(descriptor)}; wait until that ends, end it, or "
                "choose another folder"
            ) from None
        if error.errno not in UNSUPPORTED:
            raise
        _warn_unlocked(path, error.strerror or "no reason given")


def _warn_unlocked(path: Path, reason: str) -> None:
    _log.warning(
        "%s cannot be locked (%s), so that nothing keeps a second process from writing there; start only one",
        path.parent,
        reason,
    )


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    """Say who holds the lock. Of the command only its name: its options may hold what must not be written down."""
    program, *arguments = getattr(sys, "argv", None) or [""]
    name = Path(program).name
    command = " ".join([name, *arguments[:1]]) if name == "groupwise" else name
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
        "command": command or "python",
    }
    content = json.dumps(holder).encode()
    os.ftruncate(descriptor, 0)
    if os.pwrite(descriptor, content, 0) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _name_holder(descriptor: int) -> str:
    """Who holds the lock, in words."""
    try:
        holder = json.loads(os.pread(descriptor, MAX_LOCK_BYTES, 0))
        words = {name: quote_line(str(holder[name]), limit=200) for name in ("pid", "host", "since", "command")}
    except (OSError, ValueError, KeyError, TypeError):  # it has the lock and is about to say its name
        return "another process"
    return "process {pid} on {host} (`{command}`, since {since})".format(**words)


def _remove_and_close(descriptor: int, path: Path) -> None:
    """Let go of a lock: first the file, so that nobody can take it for one that is held."""
    with suppress(OSError):
        if _is_at(descriptor, path):
            path.unlink()
    with suppress(OSError):
        os.close(descriptor)


def _forget_in_child() -> None:
    for lock in list(_live):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
