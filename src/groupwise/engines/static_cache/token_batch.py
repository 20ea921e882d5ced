"""Tokens of several rows side by side, and where each of them goes: no row is padded to another's length.

A row is a response's prompt, or what its lane does not hold of it yet, or the one token that a decoding step reads. Its
tokens lie one after another, and a token's position in its sequence is also its column in the lane. A row may go to
several lanes: those of attempts that begin alike.

Axes: N tokens, B rows, L lanes, G tiles of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

ALIGNED = 4
"""Numbers that 16 bytes hold."""
Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenBatch:
    """Tokens that are read in one pass."""

    ids: torch.Tensor
    """The tokens (N)."""
    positions: torch.Tensor
    """Their positions, which are their columns too (N)."""
    rows: torch.Tensor
    """The row of each (N)."""
    begins: torch.Tensor
    """Where each row's lanes begin among all (B + 1)."""
    lanes: torch.Tensor
    """The lanes of all rows, one row's after another's."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowTable:
    """Where the tokens of each row are, for attention; it reads from the first of the row's lanes."""

    firsts: torch.Tensor
    """The place of each row's first token among all (B)."""
    lengths: torch.Tensor
    """How many tokens it has (B)."""
    known: torch.Tensor
    """Tokens of its sequence that come before them, in its lane (B)."""
    lanes: torch.Tensor
    """The lane that it is read from (B)."""
    tile_rows: torch.Tensor
    """The row of each tile (G)."""
    tile_numbers: torch.Tensor
    """Which of its row's tiles it is (G)."""


@dataclass(frozen=True)
class UnreadRow:
    """A row before it is read."""

    ids: tuple[int, ...]
    """Its tokens, at least one."""
    known: int
    """Tokens of its sequence that the lane holds."""
    lanes: tuple[int, ...]
    """Where it goes."""


@dataclass(frozen=True)
class TableSizes:
    """How long the columns of a batch are; what a batch does not fill is padding, which is read but goes nowhere."""

    tokens: int
    """Tokens."""
    rows: int
    """Rows, the last of which is nobody's: padding belongs to it."""
    lanes: int
    """Lanes of all rows."""
    tiles: int
    """Tiles of queries."""

    @property
    def lengths(self) -> list[int]:
        """The lengths of all columns, in their order."""
        return [*[self.tokens] * 3, self.rows + 1, self.lanes, *[self.rows] * 4, *[self.tiles] * 2]


def lay_out(rows: Sequence[UnreadRow], *, queries: int, tile: int, device: torch.device) -> tuple[TokenBatch, RowTable]:
    """Lay rows side by side, in one transfer to the device.

    Attention takes a row's tokens, each `queries` times, in tiles of `tile`.
    """
    columns = list_columns(rows, queries=queries, tile=tile)
    return split_columns(send(join_columns(columns), device), [len(column) for column in columns])


def list_columns(
    rows: Sequence[UnreadRow], *, queries: int, tile: int, sizes: TableSizes | None = None
) -> list[Integers]:
    """The columns of a batch and of its table, filled up to some sizes."""
    lengths = np.array([len(row.ids) for row in rows], dtype=np.int32)
    known = np.array([row.known for row in rows], dtype=np.int32)
    firsts = (np.cumsum(lengths) - lengths).astype(np.int32)
    row_N = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
    counts = np.array([len(row.lanes) for row in rows], dtype=np.int32)
    num_tiles = -(-lengths * queries // tile)
    tile_rows = np.repeat(np.arange(len(rows), dtype=np.int32), num_tiles)
    columns: list[Integers] = [
        np.fromiter(chain.from_iterable(row.ids for row in rows), dtype=np.int32, count=int(lengths.sum())),
        np.arange(len(row_N), dtype=np.int32) + (known - firsts)[row_N],
        row_N,
        np.concatenate([np.zeros(1, np.int32), np.cumsum(counts).astype(np.int32)]),
        np.fromiter(chain.from_iterable(row.lanes for row in rows), dtype=np.int32, count=int(counts.sum())),
        firsts,
        lengths,
        known,
        np.array([row.lanes[0] for row in rows], dtype=np.int32),
        tile_rows,
        np.arange(len(tile_rows), dtype=np.int32) - (np.cumsum(num_tiles) - num_tiles).astype(np.int32)[tile_rows],
    ]
    if sizes is None:
        return columns
    nobody, end = sizes.rows - 1, int(counts.sum())
    fillers = [0, 0, nobody, end, 0, 0, 0, 0, 0, nobody, 0]
    return [
        np.concatenate([column, np.full(length - len(column), filler, np.int32)])
        for column, length, filler in zip(columns, sizes.lengths, fillers, strict=True)
    ]


def join_columns(columns: Sequence[Integers]) -> Integers:
    """All columns one after another, each where a multiple of 16 bytes begins.

    A kernel is compiled anew for every tensor that begins elsewhere, and lengths are any.
    """
    starts = _list_starts([len(column) for column in columns])
    joint = np.zeros(starts[-1], dtype=np.int32)
    for start, column in zip(starts, columns, strict=False):
        joint[start : start + len(column)] = column
    return joint


def _list_starts(lengths: Sequence[int]) -> list[int]:
    """Where each column begins, and where the last ends."""
    return [0, *accumulate(-(-length // ALIGNED) * ALIGNED for length in lengths)]


def split_columns(joint: torch.Tensor, lengths: list[int]) -> tuple[TokenBatch, RowTable]:
    """A batch and its table, as parts of one tensor."""
    parts = [joint[start : start + length] for start, length in zip(_list_starts(lengths), lengths, strict=False)]
    batch = TokenBatch(ids=parts[0], positions=parts[1], rows=parts[2], begins=parts[3], lanes=parts[4])
    table = RowTable(
        firsts=parts[5], lengths=parts[6], known=parts[7], lanes=parts[8], tile_rows=parts[9], tile_numbers=parts[10]
    )
    return batch, table


def send(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """An array on the device; the host does not wait for it."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
