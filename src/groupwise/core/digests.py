"""Digests of the files in a folder, at any depth, so that one flipped bit is found before anything is made of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

MAX_THREADS = 4
"""Files that are read at once; a digest is computed outside Python's lock."""


def digest_files(folder: Path, names: Iterable[str], *, flush: bool = False) -> dict[str, str]:
    """The sha256 of each file, by name; with `flush`, each is on the disk when this returns."""
    ordered = sorted(names)
    with ThreadPoolExecutor(min(MAX_THREADS, max(len(ordered), 1))) as threads:
        return dict(zip(ordered, threads.map(lambda name: _digest(folder / name, flush=flush), ordered), strict=True))


def digest_value(value: object) -> str:
    """The sha256 of a JSON value, whatever the order of its names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


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
