"""A folder in memory for weights on their way to servers of this machine; what killed runs left there is removed."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

MEMORY_FOLDER = Path("/dev/shm")
"""Where files lie in memory, on machines that have such a place."""
PROCESS_NUMBERS = Path("/proc/self/ns/pid")
"""Says which count of processes ours is of: containers may share the memory's folder and not that count."""
PREFIX = "groupwise-weights"


def open_weights_folder(num_bytes: int) -> TemporaryDirectory[str]:
    """A folder for so many bytes until it is closed: in memory where there is room, among temporary files where not.

    A process that is killed closes nothing, so each folder is named after its process, and the next one to need room
    removes those whose process is gone.
    """
    remove_leftovers()
    prefix = f"{PREFIX}-{_read_count()}-{os.getpid()}-"
    return TemporaryDirectory(prefix=prefix, dir=find_memory_folder(num_bytes))


def find_memory_folder(num_bytes: int) -> Path | None:
    """Where a file of so many bytes lies in memory; None where there is no such place, or too little room in it.

    Containers often have 64 MiB of it.
    """
    try:
        has_room = shutil.disk_usage(MEMORY_FOLDER).free > 2 * num_bytes
    except OSError:
        return None
    return MEMORY_FOLDER if has_room and os.access(MEMORY_FOLDER, os.W_OK) else None


def remove_leftovers() -> None:
    """Remove the folders in memory that processes of ours left which are gone."""
    name = re.compile(rf"{PREFIX}-{_read_count()}-(\d+)-\w+")
    for folder in MEMORY_FOLDER.glob(f"{PREFIX}-*"):
        owner = name.fullmatch(folder.name)
        with suppress(OSError):  # gone meanwhile
            if owner and folder.lstat().st_uid == os.getuid() and not _is_alive(int(owner[1])):
                shutil.rmtree(folder, ignore_errors=True)


def _read_count() -> int:
    """A number for the count of processes that ours is of; 0 where the system has only one."""
    try:
        return PROCESS_NUMBERS.stat().st_ino
    except OSError:
        return 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return True
    return True
