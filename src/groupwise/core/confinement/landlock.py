"""Landlock: a process that may read what lies under some folders, and neither write nor connect anywhere."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many rights over files each version knows, from the first bit on."""
_NETWORK_SINCE, _NETWORK_RIGHTS = 4, 0b11
"""Bind and connect, by TCP."""
_SCOPES_SINCE, _SCOPES = 6, 0b11
"""Abstract sockets and signals, of processes outside."""


def read_landlock_version() -> int:
    """Which version this kernel has; 0 = none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))


def lock_files(readable: Iterable[Path]) -> bool:
    """Give up every right over files but to read under these paths, and TCP; False where the kernel refuses.

    The process must have given up new privileges before.
    """
    version = read_landlock_version()
    if version == 0:
        return False
    rights = (1 << max(count for since, count in _FILE_RIGHTS.items() if since <= version)) - 1
    network = _NETWORK_RIGHTS if version >= _NETWORK_SINCE else 0
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    # A field that the kernel does not know yet may be there as long as it is 0.
    handled = ctypes.create_string_buffer(struct.pack("QQQ", rights, network, scopes), 24)
    ruleset = _call(_CREATE_RULESET, handled, ctypes.c_size_t(24), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow_reading(ruleset, path)
        return _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    finally:
        os.close(ruleset)


def _allow_reading(ruleset: int, path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what is not there cannot be read either
        return
    try:
        rights = _READ_FILE | (_READ_DIR if path.is_dir() else 0)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_uint32(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(number), *arguments))
