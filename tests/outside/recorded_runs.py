"""What a run wrote, read without the product's own readers where that is easy."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from groupwise.store.journal_file import unpack_blob


def rows_of(run: Path) -> dict[int, list[dict[str, Any]]]:
    """Recorded steps by update."""
    with sqlite3.connect(run / "journal.sqlite") as database:
        rollouts = database.execute("SELECT number, steps FROM trajectories ORDER BY number, task, rollout").fetchall()
    rows: dict[int, list[dict[str, Any]]] = {}
    for number, blob in rollouts:
        rows.setdefault(number, []).extend(unpack_blob(blob))
    return rows


def weights_of(run: Path, number: int) -> dict[str, list[Any]]:
    """The weights of a checkpoint as lists of numbers."""
    tensors = load_file(run / "checkpoints" / f"{number:04d}" / "model.safetensors")
    return {name: tensor.tolist() for name, tensor in tensors.items()}
