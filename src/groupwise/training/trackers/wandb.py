"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from groupwise.core.parts.part import Part


class Wandb(Part, slot="tracker"):
    """A run at Weights & Biases; a resumed run goes on with the same one."""

    project: str = "groupwise"
    """The project it belongs to."""
    entity: str | None = None
    """User or team; None = your own."""
    name: str | None = None
    """Its name there; None = that of the run's folder."""
    mode: Literal["online", "offline"] = "online"
    """Whether it is sent at once, or kept in the run's folder for `wandb sync`."""

    @property
    def package(self) -> str:
        """What must be installed."""
        return "wandb"

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> WandbRun:
        """Begin or go on."""
        import wandb

        run = wandb.init(
            project=self.project,
            entity=self.entity,
            name=self.name or folder.resolve().name,
            id=run_id,
            resume="allow",
            dir=str(folder),
            config=dict(config),
            mode=self.mode,
        )
        return WandbRun(run)


class WandbRun:
    """A run at Weights & Biases."""

    def __init__(self, run: Any) -> None:
        self._run = run

    @property
    def run_id(self) -> str:
        """Its id there."""
        return str(self._run.id)

    def log(self, number: int, metrics: Mapping[str, float]) -> None:
        """Hand the metrics over, at the update's number."""
        self._run.log(dict(metrics), step=number)

    def finish(self) -> None:
        """Wait until everything is sent."""
        self._run.finish()
