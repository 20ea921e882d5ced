"""Runs whose parts come from outside the tree: the packages of `packages`, named by a run file and nothing else.

A package lies beside the tests as a user's would beside a project: it imports groupwise, groupwise never imports it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = Path(__file__).parent / "packages"
"""What stands on the path of the command: one folder a package."""

SMALL_RUN = """
seed = 0
threads = 1

[env]
kind = "gridworld"
size = 3
num_holes = 1
max_steps = 4

[model]
kind = "tiny"
hidden = 16
layers = 1

[rollout]
max_tokens = 2
group_size = 4

[training]
updates = 2
tasks = 2
checkpoint_every = 1

[evaluation]
tasks = 0
"""
"""A run of a second; a test adds the sections `[algorithm]` and whatever it is about."""

OFTEN_RIGHT = (
    SMALL_RUN.replace('kind = "gridworld"\nsize = 3\nnum_holes = 1\nmax_steps = 4', 'kind = "identity"\nnum_words = 4')
    .replace("group_size = 4", "group_size = 24")
    .replace("tasks = 2", "tasks = 2\nlearner = { learning_rate = 1e-2 }")
)
"""Words to repeat, of which a fresh model gets some right: there is something to learn from."""


def groupwise(*arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command-line tool in a process of its own, with the packages on its path."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(PACKAGES)]),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "groupwise", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if check and answer.returncode:
        raise AssertionError(f"groupwise {' '.join(arguments)} failed:\n{answer.stdout}\n{answer.stderr}")
    return answer


def train_from_file(folder: Path, text: str, *options: str, name: str = "run") -> Path:
    """Write a run file, train what it says, and return the folder of the run."""
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    groupwise("train", str(file), "--out", name, "--plain", *options, cwd=folder)
    return folder / name
