"""Folders that this process may read and not write in."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def read_only(source: Path) -> Iterator[Path]:
    """A copy of a folder that this process may not write in; as somebody else where it may do anything."""
    with tempfile.TemporaryDirectory() as parent:
        copy = Path(shutil.copytree(source, Path(parent) / source.name))
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        Path(parent).chmod(0o755)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(NOBODY)
        try:
            yield copy
        finally:
            if is_root:
                os.seteuid(0)
            for path in (copy, *copy.rglob("*")):
                path.chmod(0o755)
