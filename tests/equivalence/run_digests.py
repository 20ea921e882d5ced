"""A finished run as digests, part by part: every column of its journal by update, every weight by checkpoint.

The file is read with sqlite3 and safetensors alone, not through the product's own readers, which are on trial. Left out
is what the clock or the machine says, and what is a digest of the rest: the journal's chain and a checkpoint's list of
files, which change whenever a column is added.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

CLOCKS = ("seconds/", "speed/")
"""Names of metrics that tell the time."""
TABLES = ("trajectories", "faults", "evaluations", "past_rollouts", "replayed")
"""The tables that have several rows an update; `updates`, `metrics` and `about` are written out as they are."""
PACKED = {("trajectories", "steps"), ("trajectories", "credit"), ("replayed", "credit")}
"""Columns that hold compressed JSON."""
ARRAYS = {("past_rollouts", "states"): np.int64, ("past_rollouts", "rewards"): np.float64}
"""Columns that hold the bytes of an array."""
DERIVED = ("digest", "files", "journal")
"""What is computed from the rest."""
DIGITS = 12
"""How much of a digest is kept: enough for two that differ, and a line stays short."""


def digest_of(value: object) -> str:
    """The beginning of the SHA-256 of a value's JSON, names sorted, numbers with every digit."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def digest_run(folder: Path) -> dict[str, Any]:
    """What a run comes to: `journal` (table, column, update), `weights` (digests and norms: tensor, checkpoint) and
    `state` (what checkpoints hold beside tensors)."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database:
        database.row_factory = sqlite3.Row
        journal = _digest_journal(database)
    checkpoints = sorted(path for path in (folder / "checkpoints").iterdir() if path.is_dir())
    return {"journal": journal, "weights": _digest_weights(checkpoints), "state": _digest_state(checkpoints)}


def _digest_journal(database: sqlite3.Connection) -> dict[str, Any]:
    metrics: dict[str, dict[str, float]] = {}
    for number, name, value in database.execute("SELECT number, name, value FROM metrics ORDER BY name, number"):
        if not name.startswith(CLOCKS):
            metrics.setdefault(name, {})[str(number)] = value
    versions = {str(number): version for number, version in database.execute("SELECT number, version FROM updates")}
    digests: dict[str, Any] = {
        "about": dict(map(tuple, database.execute("SELECT key, value FROM about ORDER BY key"))),
        "versions": versions,
        "metrics": metrics,
    }
    for table in TABLES:
        rows = database.execute(f"SELECT * FROM {table} ORDER BY number, task, rollout")
        digests |= _digest_table(table, rows, numbers=["0", *versions])
    return digests


def _digest_table(table: str, rows: Iterable[sqlite3.Row], *, numbers: Sequence[str]) -> dict[str, Any]:
    """Digests of a table's columns by update, `rows` = how many; the rows of steps are a table of their own."""
    by_update: dict[str, list[dict[str, Any]]] = {number: [] for number in numbers}
    for row in rows:
        cells = {name: _decode(table, name, row[name]) for name in row.keys()}  # noqa: SIM118 (a Row iterates its cells)
        by_update[str(cells.pop("number"))].append(cells)
    digests = {table: _digest_columns(by_update)}
    if table == "trajectories":
        steps = {number: [step for row in rows for step in row["steps"]] for number, rows in by_update.items()}
        digests[table].pop("steps", None)
        digests["steps"] = _digest_columns(steps)
    return digests


def _digest_columns(by_update: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    names = dict.fromkeys(name for rows in by_update.values() for row in rows for name in row)
    digests: dict[str, Any] = {"rows": {number: len(rows) for number, rows in by_update.items()}}
    for name in names:
        # A row that lacks a column has nothing there: the same as null.
        digests[name] = {
            number: digest_of([row.get(name) for row in rows]) for number, rows in by_update.items() if rows
        }
    return digests


def _decode(table: str, column: str, cell: Any) -> Any:
    if (table, column) in PACKED:
        return json.loads(zlib.decompress(cell))
    if (table, column) in ARRAYS:
        return np.frombuffer(cell, dtype=ARRAYS[table, column]).tolist()
    return cell


def _digest_weights(checkpoints: Sequence[Path]) -> dict[str, Any]:
    """Digest and norm of every weight, and of the optimizer's tensors of each kind together."""
    digests: dict[str, dict[str, str]] = {}
    norms: dict[str, dict[str, float]] = {}
    for checkpoint in checkpoints:
        for name, tensors in _tensors_of(checkpoint).items():
            content = hashlib.sha256()
            for tensor in tensors:
                content.update(f"{tensor.dtype} {list(tensor.shape)} ".encode())
                content.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            digests.setdefault(name, {})[checkpoint.name] = content.hexdigest()[:DIGITS]
            norm = torch.stack([tensor.double().norm() for tensor in tensors]).norm().item()
            norms.setdefault(name, {})[checkpoint.name] = float(f"{norm:.9g}")
    return {"digests": digests, "norms": norms}


def _tensors_of(checkpoint: Path) -> dict[str, list[torch.Tensor]]:
    tensors: dict[str, list[torch.Tensor]] = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        for name, tensor in sorted(load_file(file).items()):
            kind = name.rpartition("/")[2] if file.stem == "optimizer" else name
            tensors.setdefault(f"{file.stem}: {kind}", []).append(tensor)
    return tensors


def _digest_state(checkpoints: Sequence[Path]) -> dict[str, Any]:
    digests: dict[str, dict[str, str]] = {}
    for checkpoint in checkpoints:
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        for name in sorted(state.keys() - set(DERIVED)):
            digests.setdefault(name, {})[checkpoint.name] = digest_of(state[name])
    return digests
