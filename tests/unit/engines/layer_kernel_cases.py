"""What a layer computes beside its products, for the operations in torch and as kernels, against its definition.

    TRITON_INTERPRET=1 python -m tests.unit.engines.layer_kernel_cases

writes the largest difference of every case; whether Triton interprets is settled when it is imported.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import torch

from groupwise.engines.static_cache.cache import RowTable, UnreadRow, lay_out
from tests.unit.engines.kernel_cases import mend_interpreter

LANES, WIDTH = 9, 70
ROWS = (
    UnreadRow(tuple(range(11)), 0, (2, 5, 6)),
    UnreadRow((7,), 33, (0,)),
    UnreadRow(tuple(range(40)), 30, (8,)),
    UnreadRow((3, 4, 5, 6, 7), 1, (1,)),
)
"""Rows of any length: one that goes to three lanes, one of a single token, one that ends where its lane does."""
SHAPES = {"grouped": (6, 2, 16), "seven": (7, 1, 32), "one to one": (3, 3, 24), "narrow": (4, 2, 8)}
"""Queries, heads of keys, and their width."""
CASES = [f"{kind}, {shape}" for kind in ("rotate", "rotate normed", "attend") for shape in SHAPES]
CASES += ["norm", "norm of a sum", "gate"]
TOKENS = sum(len(row.ids) for row in ROWS)


def load_kernels() -> Any:
    from groupwise.engines.static_cache import kernels

    return kernels


def measure_gap(operations: Any, case: str, dtype: torch.dtype, device: str) -> float:
    """The largest difference of a case; for numbers beyond 1, relative to them."""
    kind, _, shape = case.partition(", ")
    draw = torch.Generator().manual_seed(len(case))
    if kind.startswith("rotate"):
        pairs = run_rotation(operations, SHAPES[shape], draw, dtype, device, is_normed=kind == "rotate normed")
    elif kind == "attend":
        pairs = run_attention(operations, SHAPES[shape], draw, dtype, device)
    elif kind == "gate":
        pairs = run_gate(operations, draw, dtype, device)
    else:
        pairs = run_norm(operations, draw, dtype, device, has_residual=kind == "norm of a sum")
    return max(
        float(((ours.cpu().double() - wanted).abs() / wanted.abs().clamp(min=1)).max()) for ours, wanted in pairs
    )


Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""What was computed, and what it must be."""


def run_norm(operations: Any, draw: Any, dtype: torch.dtype, device: str, *, has_residual: bool) -> Pairs:
    width = 50
    new, residual, weight = (torch.randn(*shape, generator=draw).to(dtype) for shape in ((6, 50), (6, 50), (50,)))
    total = (new.double() + residual.double()).to(dtype).double() if has_residual else new.double()
    wanted = total / (total.pow(2).sum(-1, keepdim=True) / width + 1e-5).sqrt() * weight.double()
    given = residual.to(device) if has_residual else None
    ours = operations.add_and_norm(new.to(device), given, weight.to(device), 1e-5)
    return [(ours[0], total), (ours[1], wanted)]


def run_gate(operations: Any, draw: Any, dtype: torch.dtype, device: str) -> Pairs:
    both = (3 * torch.randn(5, 2 * 1300, generator=draw)).to(dtype)
    halves = both.to(device).split(1300, -1)
    gates, ups = (half.double() for half in both.split(1300, -1))
    return [(operations.gate(*halves), gates / (1 + (-gates).exp()) * ups)]


def run_rotation(
    operations: Any, shape: tuple[int, int, int], draw: Any, dtype: torch.dtype, device: str, *, is_normed: bool
) -> Pairs:
    heads, num, size = shape
    joint = torch.randn(TOKENS, (heads + 2 * num) * size, generator=draw).to(dtype)
    angles = torch.rand(TOKENS, size // 2, generator=draw).repeat(1, 2) * 6
    cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
    weights = torch.rand(2, size, generator=draw).to(dtype)
    lanes = torch.full((2, LANES, num, WIDTH, size), 7.0, dtype=dtype)
    query, key, value = (
        part.unflatten(-1, (-1, size)) for part in joint.double().split([heads * size, num * size, num * size], -1)
    )
    if is_normed:
        query, key = (
            part / (part.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
            for part, weight in zip((query, key), weights, strict=True)
        )
    query, key = (turn(part, cosine.double(), sine.double()) for part in (query, key))
    wanted, token = lanes.double(), 0
    for row in ROWS:
        for place in range(len(row.ids)):
            for lane in row.lanes:
                wanted[0, lane, :, row.known + place] = key[token]
                wanted[1, lane, :, row.known + place] = value[token]
            token += 1
    batch, _ = lay_out(ROWS, queries=heads // num, tile=16, device=torch.device(device))
    parts = joint.clone().to(device).split([heads * size, num * size, num * size], -1)
    stored = (lanes[0].clone().to(device), lanes[1].clone().to(device))
    on_device = weights.to(device)
    norms = (on_device[0], on_device[1], 1e-6) if is_normed else None
    turned = operations.rotate_and_store(
        *(part.unflatten(-1, (-1, size)) for part in parts), (cosine.to(device), sine.to(device)), batch, stored, norms
    )
    return [(turned, query), (stored[0], wanted[0]), (stored[1], wanted[1])]


def turn(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Pairs of numbers, half a head apart, turned by an angle each."""
    half = heads.shape[-1] // 2
    turned = heads.clone()
    for place in range(half):
        c, s = cosine[:, None, place], sine[:, None, place]
        turned[..., place] = heads[..., place] * c - heads[..., place + half] * s
        turned[..., place + half] = heads[..., place + half] * c + heads[..., place] * s
    return turned


def run_attention(operations: Any, shape: tuple[int, int, int], draw: Any, dtype: torch.dtype, device: str) -> Pairs:
    """What lies beyond a row's end is huge, so that a column too many is not overlooked."""
    heads, num, size = shape
    query = torch.randn(TOKENS, heads, size, generator=draw).to(dtype)
    keys, values = (torch.randn(LANES, num, WIDTH, size, generator=draw).to(dtype) for _ in range(2))
    for row in ROWS:
        keys[row.lanes[0], :, row.known + len(row.ids) :] = 100
        values[row.lanes[0], :, row.known + len(row.ids) :] = 1e4
    scaling, wanted, token = 1.5 / math.sqrt(size), [], 0
    for row in ROWS:
        for place in range(len(row.ids)):
            seen = row.known + place + 1
            for head in range(heads):
                at = head * num // heads
                scores = keys[row.lanes[0], at, :seen].double() @ query[token, head].double() * scaling
                wanted.append(scores.softmax(0) @ values[row.lanes[0], at, :seen].double())
            token += 1
    table: RowTable = lay_out(ROWS, queries=heads // num, tile=16, device=torch.device(device))[1]
    ours = operations.attend_rows(
        query.to(device), (keys.to(device), values.to(device)), table, scaling=scaling, tile=16
    )
    return [(ours, torch.stack(wanted).view(TOKENS, heads, size))]


def main() -> None:
    mend_interpreter()
    kernels = load_kernels()
    gaps = {case: measure_gap(kernels, case, torch.float32, "cpu") for case in CASES}
    sys.stdout.write(json.dumps(gaps))


if __name__ == "__main__":
    main()
