"""Which file system a folder is on: what locks and SQLite's log may rely on differs where other machines see it too."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

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
