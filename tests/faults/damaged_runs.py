"""Runs of a second that the tests damage, and what they are compared with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from groupwise.learner.protocol import hash_weights
from groupwise.system.errors import GroupwiseError
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.unit.training.runs import small_config


def make_run(folder: Path, *, updates: int, method: str = "dr_grpo") -> Run:
    """A finished run; its journal is one file, as after a clean end."""
    run = open_run(small_config(updates=updates, method=method), folder)
    train(run)
    run.journal.close()
    return run


def go_on(folder: Path, *, updates: int, method: str = "dr_grpo", **changes: Any) -> Run:
    """The run, resumed and at its end."""
    run = open_run(small_config(updates=updates, method=method).model_copy(update=changes), folder)
    try:
        train(run, resume=True)
    except BaseException:
        run.journal.close()
        raise
    return run


def refusal(folder: Path, *, updates: int, method: str = "dr_grpo", **changes: Any) -> str:
    """What a run says that cannot go on, in one line."""
    with pytest.raises(GroupwiseError) as caught:
        go_on(folder, updates=updates, method=method, **changes)
    said = str(caught.value)
    assert "\n" not in said
    return said


def follow(said: str, folder: Path) -> str:
    """Do what a refusal advises: write the number into `latest`; the number."""
    number = said.partition("write `")[2].partition("`")[0]
    pointer = folder / "checkpoints" / "latest"
    assert said.endswith(f"write `{number}` into {pointer} and resume"), said
    pointer.write_text(f"{number}\n")
    return number


def flip_bit(path: Path, place: float = 0.5) -> None:
    """Flip one bit of a file, a share of its length from its beginning."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 4
    path.write_bytes(content)


def copy_run(source: Path, target: Path) -> Path:
    """A copy of a run's folder."""
    return Path(shutil.copytree(source, target))


def weights_of(run: Run) -> str:
    """A digest of the learner's weights."""
    return hash_weights(run.learner.weights())
