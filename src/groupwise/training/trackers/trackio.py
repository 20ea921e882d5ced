"""Trackio: a dashboard on your own machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.core.parts.part import Part


class Trackio(Part, slot="tracker"):
    """A run in Trackio; a resumed run goes on with the same one."""

    project: str = "groupwise"
    """The project it belongs to."""
    name: str | None = None
    """Its name there; None = that of the run's folder."""

    @property
    def package(self) -> str:
        """What must be installed."""
        return "trackio"

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> TrackioRun:
        """Begin or go on."""
        import trackio

        run = trackio.init(
            project=self.project,
            name=run_id or self.name or folder.resolve().name,
            resume="never" if run_id is None else "must",
            config=dict(config),
            embed=False,
        )
        return TrackioRun(run)


class TrackioRun:
    """A run in Trackio."""

    def __init__(self, run: Any) -> None:
        self._run = run

    @property
    def run_id(self) -> str:
        """Its name there; of several runs of one name, Trackio goes on with the latest."""
        return str(self._run.name)

    def log(self, number: int, metrics: Mapping[str, float]) -> None:
        """Hand the metrics over, at the update's number."""
        self._run.log(dict(metrics), step=number)

    def finish(self) -> None:
        """Write out what is left."""
        self._run.finish()
