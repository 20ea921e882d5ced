"""The folder that weights pass through on their way to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory


def choose_folder(named: str, of_run: Path | None) -> Path | None:
    """The folder that a run file names, or else the run's own place; None = a temporary one for each hand-over."""
    place = Path(named) if named else of_run
    # An engine in another process may stand in another folder.
    return None if place is None else place.absolute()


@contextmanager
def hold_folder(folder: Path | None) -> Iterator[Path]:
    """A place for files during a hand-over; it goes afterwards, unless somebody else's files are there."""
    if folder is None:
        with TemporaryDirectory(prefix="groupwise-") as place:
            yield Path(place)
        return
    try:
        yield folder
    finally:
        with suppress(OSError):  # somebody else's files may be there
            folder.rmdir()
