"""The names of the files in a run folder.

    FOLDER/
        config.toml         all settings, loadable as a run file
        journal.sqlite      every update with its rollouts, and the evaluations
        checkpoints/
            0000/           the initial policy; state.json has the digest of every file
            0005/ ...
            latest          the name of the checkpoint to resume from
        run.lock            exists while a process writes here
        judge.jsonl         a judge's questions and answers, one per line, if the judge is a model
        trackers.json       how far each tracker got, if there are trackers
        report.html         as `groupwise report` writes it
        weights/            weights for the engine, if the weight sync uses files
        servers/            logs of servers that the run started, and the model for them if it had no folder

All other modules use these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.system.files import write_atomic

CONFIG = "config.toml"
JOURNAL = "journal.sqlite"
DAMAGED_JOURNAL = "journal.damaged.sqlite"
"""The old file, after the undamaged updates of a journal were written into a new one."""
CHECKPOINTS = "checkpoints"
LATEST = "latest"
STATE = "state.json"
TOKENIZER = "tokenizer.json"
LOCK = "run.lock"
JUDGE_RECORD = "judge.jsonl"
BOOKMARKS = "trackers.json"
REPORT = "report.html"
WEIGHTS = "weights"
SERVERS = "servers"
SWEEP_PLAN = "sweep.json"
"""In a sweep's folder, which holds run folders."""


class RunPaths:
    """The paths of a run's files, whether they exist or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / CONFIG
        self.journal = folder / JOURNAL
        self.checkpoints = folder / CHECKPOINTS
        self.latest = self.checkpoints / LATEST
        self.judge_record = folder / JUDGE_RECORD
        self.bookmarks = folder / BOOKMARKS
        self.report = folder / REPORT
        self.weights = folder / WEIGHTS
        self.servers = folder / SERVERS

    def checkpoint(self, number: int) -> Path:
        """The checkpoint after an update; 0 = before the first."""
        return self.checkpoints / name_checkpoint(number)

    def checkpoint_numbers(self) -> list[int]:
        return sorted([int(path.name) for path in self.checkpoints.glob("[0-9]*") if path.name.isdecimal()])

    def holds_run(self) -> bool:
        return self.journal.exists() or self.checkpoints.exists()

    def write_config(self, settings: Mapping[str, Any]) -> None:
        """Write the settings atomically: a run that is killed here must still resume."""
        import tomli_w  # the core works without it

        with write_atomic(self.config, advice="free some space, or use another folder") as draft:
            self.folder.mkdir(parents=True, exist_ok=True)
            draft.write_text(tomli_w.dumps(settings), encoding="utf-8")


def name_checkpoint(number: int) -> str:
    """The name of a checkpoint's folder.

    >>> name_checkpoint(5)
    '0005'
    """
    return f"{number:04d}"
