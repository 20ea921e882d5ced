"""Files: reading small text files, atomic writes, the file system of a folder, digests of a folder's files.

Pipes, devices and very large files are an error before they are in memory.
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
from pathlib import Path, PurePosixPath
from typing import Any

from groupwise.system.errors import FileError
from groupwise.system.json_text import MAX_NESTING
from groupwise.system.text import quote_line

MAX_TEXT_BYTES = 1 << 20
"""Of a file that people write: a thousand times the size of a run file."""
MAX_KEY_PARTS = 32
MAX_DIGITS = 100

_TOO_DEEP = "its lists and tables are nested too deep"
_TOO_LARGE = f"a number in it has more than {MAX_DIGITS} digits"
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}""", re.ASCII
)


def read_text_file(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """The text of a file without a byte order mark; OSError if it cannot be opened, ValueError if it is not text."""
    if not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode)):
        raise ValueError("this is a pipe or a device; copy its content into a file")
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
    """A draft beside a file, which replaces the file at the end: readers see the old content or the new one.

    Args:
        path: the file.
        advice: the fix in the FileError if it cannot be written; empty = the OSError is raised.
        flush: whether to flush the file to the disk.
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
        with suppress(OSError):  # if the folder cannot be written, there is no draft
            draft.unlink(missing_ok=True)


def flush_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def parse_toml(text: str) -> dict[str, Any]:
    """The content of a TOML text; a ValueError if it is invalid, nested too deep, or has too large numbers."""
    if _LONG_KEY.search(text):  # the memory of Python's reader grows with the square of their number
        raise ValueError(f"a key in it has more than {MAX_KEY_PARTS} parts with dots between them")
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(quote_line(str(error))) from None
    except ValueError:  # Python's own message is about its settings, not about the file
        raise ValueError(_TOO_LARGE) from None
    level: list[Any] = [content]
    for _ in range(MAX_NESTING):
        entries = [entry for holder in level for entry in (holder.values() if isinstance(holder, dict) else holder)]
        if any(isinstance(entry, int) and abs(entry) >= 10**MAX_DIGITS for entry in entries):
            raise ValueError(_TOO_LARGE)
        level = [entry for entry in entries if isinstance(entry, dict | list)]
    if level:
        raise ValueError(_TOO_DEEP)
    return content


def parse_value(text: str) -> Any:
    """A value as TOML writes it; bare words are text, as in `scale=none`."""
    try:
        content = parse_toml(f"value = {text}")
    except ValueError:
        return text
    return content["value"] if len(content) == 1 else text  # a line break would begin another setting


# The file system of a folder: locks and SQLite's log work differently if other machines share it.

MOUNTS = Path("/proc/self/mountinfo")
"""Linux's list of mounts; other systems have none."""
LOCAL = {
    *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "xfs", "zfs"),
    *("overlay", "ramfs", "rootfs", "tmpfs"),
}
"""Local file systems. All others (NFS, Lustre, GPFS, CIFS, Ceph, FUSE, 9p, ...) count as shared by several machines."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def is_shared_with_machines(folder: Path) -> bool:
    """Whether other machines may write into a folder, which need not exist yet."""
    kind = find_file_system(folder)
    return bool(kind) and kind not in LOCAL


def find_file_system(folder: Path) -> str:
    """The system's name for the file system of a folder, such as `ext4` or `nfs4`; empty = unknown (outside Linux)."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    place, mounted, kind = Path(os.path.realpath(folder)), Path(), ""
    for line in lines:
        words, _, rest = line.partition(" - ")
        fields = words.split()
        if len(fields) < 5 or not rest:
            continue
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # A later mount at the same place hides the earlier one.
        if place.is_relative_to(point) and len(point.parts) >= len(mounted.parts):
            mounted, kind = point, rest.split()[0]
    return kind


# Digests of the files in a folder, to find a single flipped bit before a file is used.


def digest_files(folder: Path, names: Iterable[str], *, flush: bool = False) -> dict[str, str]:
    """The sha256 of each file, by name; with `flush`, the files are flushed to the disk."""
    ordered = sorted(names)

    def digest(name: str) -> str:
        with (folder / name).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
            if flush:
                os.fsync(file.fileno())
        return content

    with ThreadPoolExecutor(4) as threads:  # digests are computed outside Python's lock
        return dict(zip(ordered, threads.map(digest, ordered), strict=True))


def find_change(folder: Path, digests: Mapping[str, Any]) -> str | None:
    """The first file that differs from its digest, in words, or None."""
    for name in digests:
        path = PurePosixPath(name)
        if not path.parts or ".." in path.parts or path.is_absolute() or "\\" in name:
            return f"{name!r} is no file of the folder"
        if not (folder / name).is_file():
            return f"{name} is missing"
    current = digest_files(folder, digests)
    changed = next((name for name, digest in current.items() if digest != digests[name]), None)
    return None if changed is None else f"{changed} is not as it was written"
