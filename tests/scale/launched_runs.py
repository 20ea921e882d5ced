"""The run that every launcher's files are tried with, and what two runs must have in common to be the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from tests.scale.environment import ROOT

RUN_FILE = ROOT / "deploy" / "household.toml"
UPDATES = 6
SETTINGS = [f"training.updates={UPDATES}", "training.checkpoint_every=2", "training.tasks=2", "evaluation.tasks=0"]
"""The run of deploy/, made short."""
OPTIONS = [word for setting in SETTINGS for word in ("--set", setting)]


def make_model(folder: Path) -> Path:
    """The model that the run file names, as deploy/README.md makes it, but after less imitation."""
    less = ["model.heads=2", "warm_start.tasks=200", "warm_start.epochs=1", "evaluation.tasks=0"]
    words = ["warmup", str(ROOT / "examples" / "household.toml"), *(word for item in less for word in ("--set", item))]
    subprocess.run([sys.executable, "-m", "groupwise", *words, "--out", "model"], cwd=folder, check=True)
    return folder / "model"


def read_digest(folder: Path) -> str:
    """The end of a finished run's chain of digests: every update's rollouts and credit."""
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        assert journal.last_number() == UPDATES
        assert journal.check_digest_chain().fault is None
        return journal.digest()
