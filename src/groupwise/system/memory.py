"""The free memory of this process, and the error for a model that does not fit into it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from groupwise.system.errors import ConfigError

MEMINFO = Path("/proc/meminfo")
LIMIT = Path("/sys/fs/cgroup/memory.max")
UNITS = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"))


def read_free_memory() -> float | None:
    """Free bytes, within the limit of a container; None = unknown."""
    if not MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    free = float(lines["MemAvailable"].split()[0]) * 1024
    limit = LIMIT.read_text().strip() if LIMIT.exists() else "max"
    return free if limit == "max" else min(free, float(limit))


def check_fits(needed: Mapping[str, float], available: float, *, remedy: str) -> None:
    """Raise a ConfigError if more bytes are needed, in total, than are available; `remedy` says what to change."""
    if sum(needed.values()) <= available:
        return
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in needed.items() if size)
    raise ConfigError(
        f"model: at least {format_bytes(sum(needed.values()))} of memory are needed ({parts}), but "
        f"{format_bytes(available)} are available; {remedy}"
    )


def format_bytes(size: float) -> str:
    """A number of bytes as text.

    >>> format_bytes(512), format_bytes(1.5e6), format_bytes(23.04e9), format_bytes(2.6e15)
    ('0.5 kB', '1.5 MB', '23.0 GB', '2.6 PB')
    """
    unit, name = next((known for known in UNITS if size >= known[0]), (1e3, "kB"))
    return f"{size / unit:.1f} {name}"
