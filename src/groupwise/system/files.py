"""Files: small text files read whole, the file system that a folder is on, digests of what lies in a folder.

A text file that is none (a pipe, a device), that is far too large or that is no UTF-8 is refused before it is held in
memory, and TOML that Python's reader cannot follow is told in words.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from groupwise.system.errors import FileError
from groupwise.system.json_text import MAX_NESTING
from groupwise.system.text import quote_line

MAX_TEXT_BYTES = 1 << 20
"""Of a file that people write: a thousand times what a run file takes."""
MAX_KEY_PARTS = 32
MAX_DIGITS = 100

_TOO_DEEP = "its lists and tables are nested too deep"
_TOO_LARGE = f"a number in it has more than {MAX_DIGITS} digits"
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}""", re.ASCII
)


def read_text_file(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """The text of a file, less a byte order mark; OSError where it cannot be opened, ValueError for what is no text."""
    if not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode)):
        raise ValueError("a pipe or a device is no file; copy it into one")
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"the file holds more than {max_bytes >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8 ({content[error.start]:#04x})") from None


@contextmanager
def write_atomic(path: Path, *, advice: str = "", flush: bool = False) -> Iterator[Path]:
    """A draft beside a file, which takes the file's place once it is written: a reader sees the old one or the new one.

    Args:
        path: the file.
        advice: what to do where it cannot be written, for a FileError; empty = the OSError is the caller's to tell.
        flush: whether it is on the disk when this returns.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        if flush:
            flush_file(draft)
        draft.replace(path)
    except OSError as error:
        if not advice:
            raise
        raise FileError(f"{path}: cannot be written ({error.strerror}); {advice}") from None
    finally:
        with suppress(OSError):  # where nothing could be written there is nothing to remove
            draft.unlink(missing_ok=True)


def flush_file(path: Path) -> None:
    """See that a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def parse_toml(text: str) -> dict[str, Any]:
    """The content of a TOML text; a ValueError says what is wrong with one that is none, or that nobody could mean."""
    if _LONG_KEY.search(text):  # Python's reader takes memory by the square of their number
        raise ValueError(f"a key in it has more than {MAX_KEY_PARTS} parts with dots between them")
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(quote_line(str(error))) from None
    except ValueError:  # Python's own advice is of no use to whoever has the file
        raise ValueError(_TOO_LARGE) from None
    _check_size(content)
    return content


def parse_value(text: str) -> Any:
    """A value as TOML writes it; bare words are text, as in `scale=none`."""
    try:
        content = parse_toml(f"value = {text}")
    except ValueError:
        return text
    return content["value"] if len(content) == 1 else text  # a line break would begin another setting


def _check_size(content: dict[str, Any]) -> None:
    """Refuse what is nested deeper than any setting, and integers that no message could print."""
    level: list[Any] = [content]
    for _ in range(MAX_NESTING):
        entries = [entry for holder in level for entry in (holder.values() if isinstance(holder, dict) else holder)]
        if any(isinstance(entry, int) and abs(entry) >= 10**MAX_DIGITS for entry in entries):
            raise ValueError(_TOO_LARGE)
        level = [entry for entry in entries if isinstance(entry, dict | list)]
    if level:
        raise ValueError(_TOO_DEEP)


# Which file system a folder is on: what locks and SQLite's log may rely on differs where other machines see it too.

MOUNTS = Path("/proc/self/mountinfo")
"""Linux's list of what is mounted where; other systems have none."""
LOCAL = {
    "bcachefs",
    "btrfs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "jfs",
    "overlay",
    "ramfs",
    "rootfs",
    "tmpfs",
    "xfs",
    "zfs",
}
"""Kinds that one machine has for itself. Any other (NFS, Lustre, GPFS, CIFS, Ceph, FUSE, 9p, ...) is taken for one that
several machines may share."""
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class FileSystem:
    """What a folder is on."""

    kind: str
    """As the system calls it, such as `ext4` or `nfs4`; empty where it does not say, as outside Linux."""

    @property
    def is_shared(self) -> bool:
        """Whether other machines may write there too."""
        return bool(self.kind) and self.kind not in LOCAL


def find_file_system(folder: Path) -> FileSystem:
    """The file system that a folder is on, or would be on where it does not exist yet."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return FileSystem("")
    place, mounted, kind = Path(os.path.realpath(folder)), Path(), ""
    for line in lines:
        words, _, rest = line.partition(" - ")
        fields = words.split()
        if len(fields) < 5 or not rest:
            continue
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # The last one at a place lies over those before it.
        if place.is_relative_to(point) and len(point.parts) >= len(mounted.parts):
            mounted, kind = point, rest.split()[0]
    return FileSystem(kind)


# Digests of the files in a folder, at any depth, so that one flipped bit is found before anything is made of it.

MAX_THREADS = 4
"""Files that are read at once; a digest is computed outside Python's lock."""


def digest_files(folder: Path, names: Iterable[str], *, flush: bool = False) -> dict[str, str]:
    """The sha256 of each file, by name; with `flush`, each is on the disk when this returns."""
    ordered = sorted(names)
    with ThreadPoolExecutor(min(MAX_THREADS, max(len(ordered), 1))) as threads:
        return dict(zip(ordered, threads.map(lambda name: _digest(folder / name, flush=flush), ordered), strict=True))


def find_change(folder: Path, digests: Mapping[str, Any]) -> str | None:
    """Which file is not as its digest says, in words; None where all are."""
    for name in digests:
        if not _is_inside(name):
            return f"{name!r} is no file of the folder"
        if not (folder / name).is_file():
            return f"{name} is missing"
    current = digest_files(folder, digests)
    changed = next((name for name, digest in current.items() if digest != digests[name]), None)
    return None if changed is None else f"{changed} is not as it was written"


def _is_inside(name: str) -> bool:
    """Whether a name, with slashes where it is in a folder below, stays within the folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not PurePosixPath(name).is_absolute() and "\\" not in name


def _digest(path: Path, *, flush: bool) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if flush:
            os.fsync(file.fileno())
    return digest
