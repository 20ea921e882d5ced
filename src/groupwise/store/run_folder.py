"""The folder of a run: what each file in it is called, and where it lies.

    FOLDER/
        config.toml         the settings, complete, loadable as a run file
        journal.sqlite      every update with its attempts, and the evaluations
        checkpoints/
            0000/           the policy the run began with; state.json has the digest of every file
            0005/ ...
            latest          names the checkpoint to go on from
        run.lock            while somebody writes here
        judge.jsonl         what a judge was asked and answered, a line for each question, where it is no rule
        trackers.json       how far each tracker got, where there are some
        report.html         as `groupwise report` writes it
        weights/            weights on their way to the engine, where they go through files
        servers/            logs of servers that the run started, and the model that they loaded where it had no folder

Whoever needs one of these names takes it from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.system.files import write_atomic

CONFIG = "config.toml"
JOURNAL = "journal.sqlite"
DAMAGED_JOURNAL = "journal.damaged.sqlite"
"""What a damaged journal is called after its sound updates were written anew."""
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
"""In the folder of a sweep, which holds folders of runs."""


class RunPaths:
    """Where the files of a run are, whether they are there or not; what each is, is said above."""

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
        """After which updates there are checkpoints, in order."""
        return sorted(int(path.name) for path in self.checkpoints.glob("[0-9]*") if path.name.isdecimal())

    def holds_run(self) -> bool:
        """Whether a run was begun here."""
        return self.journal.exists() or self.checkpoints.exists()

    def write_config(self, settings: Mapping[str, Any]) -> None:
        """Write the settings, whole or not at all; those that were there stay where that fails."""
        import tomli_w  # the core works without it

        # Whole, since a run that is killed here must still resume.
        with write_atomic(self.config, advice="free some space, or give another folder") as draft:
            self.folder.mkdir(parents=True, exist_ok=True)
            draft.write_text(tomli_w.dumps(settings), encoding="utf-8")


def name_checkpoint(number: int) -> str:
    """What the folder of a checkpoint is called.

    >>> name_checkpoint(5)
    '0005'
    """
    return f"{number:04d}"
