"""A weight transfer that sends what changed, compressed, through a file whose digest the receiver checks.

[training.weight_sync]
kind = "delta_transfer:DeltaTransfer"
level = 6
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from groupwise.extend import Part, TrainingError

Table = dict[str, np.ndarray[Any, Any]]


class DeltaTransfer(Part, slot="weight_sync"):
    """Sends each weight as its difference, bit by bit, from what was sent last."""

    level: Annotated[int, Field(ge=0, le=9)] = 6
    """How hard to compress."""

    def open(self, folder: Path | None) -> Deltas:
        """Nothing was sent yet."""
        return Deltas(folder, self.level)


class Deltas:
    """Both ends of the way, which a real one would have in two processes."""

    def __init__(self, folder: Path | None, level: int) -> None:
        self._folder, self._level = folder, level
        self._sent: Table = {}
        self._received: Table = {}

    def sync(self, weights: Any, engine: Any, *, version: int) -> None:
        """Send the weights, and let the engine load what arrived."""
        import torch

        table = {name: value.detach().cpu().contiguous().numpy() for name, value in dict(weights).items()}
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "delta"
            num_bytes = send(path, table, self._sent, level=self._level)
            self._received = receive(path, self._received)
        self._sent = {name: value.copy() for name, value in table.items()}
        engine.load({name: torch.from_numpy(value) for name, value in self._received.items()}, version=version)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            whole = sum(value.nbytes for value in table.values())
            with (self._folder / "sent.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps({"version": version, "bytes": num_bytes, "of": whole}) + "\n")


def send(path: Path, table: Mapping[str, np.ndarray[Any, Any]], before: Table, *, level: int) -> int:
    """Write what changed; the bytes of the file."""
    header, content = {}, b""
    for name, value in table.items():
        bits = np.frombuffer(value.tobytes(), np.uint8)
        if name in before:
            bits = bits ^ np.frombuffer(before[name].tobytes(), np.uint8)
        packed = zlib.compress(bits.tobytes(), level)
        header[name] = {"dtype": value.dtype.str, "shape": value.shape, "bytes": len(packed), "delta": name in before}
        content += packed
    first = json.dumps(header).encode() + b"\n"
    digest = hashlib.sha256(first + content).hexdigest().encode() + b"\n"
    path.write_bytes(digest + first + content)
    return path.stat().st_size


def receive(path: Path, before: Table) -> Table:
    """Read the file and put what changed on what was there."""
    digest, _, rest = path.read_bytes().partition(b"\n")
    if hashlib.sha256(rest).hexdigest().encode() != digest:
        raise TrainingError(f"{path}: the weights did not arrive as they were sent; hand them over again")
    first, _, content = rest.partition(b"\n")
    table: Table = {}
    for name, about in json.loads(first).items():
        bits = np.frombuffer(zlib.decompress(content[: about["bytes"]]), np.uint8)
        content = content[about["bytes"] :]
        if about["delta"]:
            bits = bits ^ np.frombuffer(before[name].tobytes(), np.uint8)
        table[name] = np.frombuffer(bits.tobytes(), about["dtype"]).reshape(about["shape"]).copy()
    return table
