"""The attention of a prefill as a kernel: rows of any length, with keys and values read from their lanes.

A program computes one key head and a tile of one row's queries: its tokens, each with all queries that share the head.
It reads the lane's columns up to the last visible one, with a running softmax in float32. Nothing is copied out of the
lanes, and rows are not padded.

Import this only to use the kernel: it needs Triton, which comes with torch for CUDA.

Axes: N tokens, H queries, K heads of keys and values, R queries a head of keys, D width of a head, L lanes, W columns.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from groupwise.engines.static_cache.cache import RowTable

MIN_SIDE = 16
"""The smallest side of a matrix product; narrower heads are padded."""
COLUMNS = 64
"""Columns per block in 16 bits; half of it in 32 bits."""
STAGES = 2
"""Pipeline stages of a program."""


def attend_rows(
    query_NHD: torch.Tensor, stored: tuple[torch.Tensor, torch.Tensor], table: RowTable, *, scaling: float, tile: int
) -> torch.Tensor:
    """Attention of each row's tokens to its lane up to themselves (N, H, D)."""
    (num, heads, size), (keys, values) = query_NHD.shape, stored
    num_keys, out = keys.shape[1], values.shape[3]
    attended = torch.empty(num, heads, out, dtype=query_NHD.dtype, device=query_NHD.device)
    with torch.cuda.device_of(query_NHD):
        _ATTEND_ROWS[(len(table.tile_rows), num_keys)](
            query_NHD, keys, values, attended,
            table.tile_rows, table.tile_numbers, table.firsts, table.lengths, table.known, table.lanes,
            query_NHD.stride(0), query_NHD.stride(1), *keys.stride()[:3], *values.stride()[:3],
            scaling * 1.4426950408889634, R=heads // num_keys, D=size, E=out,
            WIDE_D=max(MIN_SIDE, triton.next_power_of_2(size)), WIDE_E=max(MIN_SIDE, triton.next_power_of_2(out)),
            TILE=tile, COLUMNS=COLUMNS if keys.dtype.itemsize <= 2 else COLUMNS // 2,
            num_warps=8 if tile >= 128 else 4, num_stages=STAGES,
        )  # fmt: skip
    return attended


def _attend_rows(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, attended: tl.tensor,
    tile_rows: tl.tensor, tile_numbers: tl.tensor, firsts: tl.tensor, lengths: tl.tensor, known: tl.tensor,
    lanes: tl.tensor, query_token: tl.tensor, query_head: tl.tensor,
    keys_lane: tl.tensor, keys_head: tl.tensor, keys_column: tl.tensor,
    values_lane: tl.tensor, values_head: tl.tensor, values_column: tl.tensor, scaling: tl.tensor,
    R: tl.constexpr, D: tl.constexpr, E: tl.constexpr, WIDE_D: tl.constexpr, WIDE_E: tl.constexpr,
    TILE: tl.constexpr, COLUMNS: tl.constexpr,
) -> None:  # fmt: skip
    """One tile under one head of keys; scores are kept as powers of two."""
    row, head = tl.load(tile_rows + tl.program_id(0)), tl.program_id(1)
    begin = tl.load(tile_numbers + tl.program_id(0)) * TILE
    length, before = tl.load(lengths + row), tl.load(known + row)
    lane = tl.load(lanes + row).to(tl.int64)
    m, d, e, w = begin + tl.arange(0, TILE), tl.arange(0, WIDE_D), tl.arange(0, WIDE_E), tl.arange(0, COLUMNS)
    is_query = m < length * R
    last = before + m // R
    token = (tl.load(firsts + row) + m // R).to(tl.int64)
    heads = head * R + m % R
    query_at = query + token[:, None] * query_token + heads[:, None] * query_head + d[None, :]
    q = tl.load(query_at, mask=is_query[:, None] & (d < D)[None, :], other=0.0)
    end = before + tl.minimum((begin + TILE - 1) // R + 1, length)
    key_at = keys + lane * keys_lane + head * keys_head + w[:, None] * keys_column + d[None, :]
    value_at = values + lane * values_lane + head * values_head + w[:, None] * values_column + e[None, :]
    highest = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    out = tl.zeros([TILE, WIDE_E], tl.float32)
    for start in range(0, end, COLUMNS):
        column = start + w
        k = tl.load(key_at + start * keys_column, mask=(column < end)[:, None] & (d < D)[None, :], other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scaling
        # Every query sees the first column, so that no block comes before the highest score is a number.
        score = tl.where(column[None, :] <= last[:, None], score, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, 1))
        p, decay = tl.exp2(score - higher[:, None]), tl.exp2(highest - higher)
        v = tl.load(value_at + start * values_column, mask=(column < end)[:, None] & (e < E)[None, :], other=0.0)
        out = tl.dot(p.to(v.dtype), v, out * decay[:, None], input_precision="ieee")
        total = total * decay + tl.sum(p, 1)
        highest = higher
    out = out / total[:, None]
    at = attended + (token[:, None] * (tl.num_programs(1) * R) + heads[:, None]) * E + e[None, :]
    tl.store(at, out.to(attended.dtype.element_ty), mask=is_query[:, None] & (e < E)[None, :])


_ATTEND_ROWS: Any = triton.jit(_attend_rows)
