"""The tracker protocol: it is started for a run's folder, told numbers, and finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

from groupwise.core.parts.part import Slot


class LiveTracker(Protocol):
    """A tracker at work on one run."""

    @property
    def run_id(self) -> str:
        """What the dashboard calls the run, so that a resumed run goes on with the same one."""

    def log(self, number: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of an update, or of the evaluation after it; numbers grow, and may come twice in a row."""

    def finish(self) -> None:
        """Write out what is left."""


class Tracker(Protocol):
    """Fills the slot `tracker`: sends the numbers of a run to a dashboard or a file."""

    @property
    def package(self) -> str:
        """The package it needs, which the extra of the same name installs; empty = none."""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> LiveTracker:
        """Begin to track a run.

        Args:
            config: the resolved run file.
            folder: the run's folder.
            run_id: what the dashboard calls the run, where it was tracked before.
        """


TrackerSlot = Annotated[Tracker, Slot("tracker")]
"""A field of a run file that a tracker fills."""
