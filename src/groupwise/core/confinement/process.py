"""A process that gives up its rights before it reads what a model said.

Three boundaries, each said by name where it holds: "limits" (memory, no core files, no files, few descriptors), "files"
(Landlock: nothing is written, nothing but Python's own folders is read, no TCP) and "system calls" (seccomp: no write,
no connection, no process, no signal to others; see `system_calls`). Where a kernel lacks one, the others still hold.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from groupwise.core.confinement.landlock import lock_files, read_landlock_version
from groupwise.core.confinement.system_calls import can_filter_calls, filter_calls

Boundary = Literal["limits", "files", "system calls"]
MAX_DESCRIPTORS = 64
"""Open files at a time, for modules and data that are read late."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE = 38, 4
_SYSTEM_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom")
"""Where shared libraries, time zones and chance are read from."""


def find_boundaries() -> frozenset[Boundary]:
    """The boundaries that `confine` can set up on this system; nothing is changed by asking."""
    boundaries: set[Boundary] = {"limits"}
    if read_landlock_version() > 0:
        boundaries.add("files")
    if can_filter_calls():
        boundaries.add("system calls")
    return frozenset(boundaries)


def confine(*, max_memory: int, filters_calls: bool = True) -> frozenset[Boundary]:
    """Give up this process's rights for good, and say which boundaries hold; call it after the imports.

    Without `filters_calls` the process may still start others, which then filter their calls themselves.
    """
    sys.dont_write_bytecode = True
    boundaries: set[Boundary] = set()
    if _limit_resources(max_memory):
        boundaries.add("limits")
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # nor may others of the same user look into it
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if lock_files(_list_readable_places()):
            boundaries.add("files")
    if filters_calls and filter_calls():
        boundaries.add("system calls")
    return frozenset(boundaries)


def _limit_resources(max_memory: int) -> bool:
    wanted = {
        resource.RLIMIT_AS: max_memory,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: MAX_DESCRIPTORS,
    }
    all_held = True
    for name, limit in wanted.items():
        _, hard = resource.getrlimit(name)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        try:
            resource.setrlimit(name, (limit, limit))
        except (OSError, ValueError):  # macOS refuses a limit of the address space
            all_held = False
    return all_held


def _list_readable_places() -> set[Path]:
    """Python's own folders, those of installed packages, and of what was imported from elsewhere."""
    places = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    return places | set(_find_imported_packages()) | {Path(folder) for folder in _SYSTEM_FOLDERS}


def _find_imported_packages() -> Iterator[Path]:
    for name, module in list(sys.modules.items()):
        if "." not in name:
            yield from (Path(os.fspath(folder)) for folder in getattr(module, "__path__", ()))
