"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from groupwise.core.parts.part import Part


class Tensorboard(Part, slot="tracker"):
    """Event files that `tensorboard --logdir runs` shows."""

    folder: str = "tensorboard"
    """Folder of the event files, in the run's folder."""

    @property
    def package(self) -> str:
        """What must be installed."""
        return "tensorboard"

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> TensorboardWriter:
        """Open another event file beside those that are there; TensorBoard shows them as one."""
        return TensorboardWriter(folder / self.folder, config, is_first=run_id is None)


class TensorboardWriter:
    """Writes scalars, an event each."""

    def __init__(self, folder: Path, config: Mapping[str, Any], *, is_first: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder = folder
        self._writer = SummaryWriter(str(folder))
        if is_first:
            # Four spaces make it a block of code in TensorBoard's Markdown.
            text = "".join(f"    {line}\n" for line in tomli_w.dumps(dict(config)).splitlines())
            self._writer.add_text("config", text, 0)

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self._folder.name

    def log(self, number: int, metrics: Mapping[str, float]) -> None:
        """Write the scalars of an update."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def finish(self) -> None:
        """Close the file."""
        self._writer.close()
