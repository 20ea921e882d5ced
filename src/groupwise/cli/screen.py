"""What the commands print with: consoles, a progress bar over a file, words for numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


def output() -> Console:
    """The console for results; as wide as the terminal, or wide enough for a pipe."""
    return Console(width=None if sys.stdout.isatty() else 140, emoji=False)


def errors() -> Console:
    """The console for errors and progress."""
    return Console(stderr=True, emoji=False)


@contextmanager
def file_progress(size: int, title: str) -> Iterator[Callable[[int], None]]:
    """A progress bar over a file's bytes, on a terminal and for files that take a while; nothing otherwise."""
    if size < 8 * 2**20 or not sys.stderr.isatty():
        yield lambda done: None
        return
    bar = Progress(
        TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=errors(), transient=True
    )
    with bar:
        task = bar.add_task(title, total=size)
        yield lambda done: bar.update(task, completed=done)


def share(part: int, whole: int) -> str:
    """A share in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def shorten(text: str, width: int = 60) -> str:
    """One line of text, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def per_cent(part: float) -> str:
    """A share between 0 and 1 in per cent."""
    return f"{100 * part:.1f} %"


def in_bytes(size: float) -> str:
    """A number of bytes in words.

    >>> in_bytes(512), in_bytes(1.5e6), in_bytes(23.04e9)
    ('0.5 kB', '1.5 MB', '23.0 GB')
    """
    unit, name = next((each for each in ((1e9, "GB"), (1e6, "MB")) if size >= each[0]), (1e3, "kB"))
    return f"{size / unit:.1f} {name}"
