"""The kernel of decoding against plain products, over rows of ragged length: on a GPU, or by Triton's interpreter.

TRITON_INTERPRET=1 python -m tests.unit.engines.kernel_cases
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

LASTS = (0, 1, 15, 63, 64, 100, 150, 127)
"""The last column of each row; the seventh lies beyond the columns that are seen, as that of a finished row may."""
WIDTH = 130


@dataclass(frozen=True)
class Case:
    """One shape."""

    queries: int
    size: int
    splits: int | None = 1
    softcap: float | None = None
    value_size: int | None = None


CASES = {
    **{f"{r} queries, width {d}": Case(r, d) for r in (1, 3, 6) for d in (64, 80, 128)},
    "narrow": Case(2, 8),
    "two parts": Case(3, 64, splits=2),
    "eight parts, some without columns": Case(6, 80, splits=8),
    "parts as chosen": Case(3, 64, splits=None),
    "bent scores": Case(3, 64, softcap=2.0),
    "bent scores, four parts": Case(1, 128, splits=4, softcap=8.0),
    "values of another width": Case(3, 96, splits=2, value_size=32),
    "more queries than a tile": Case(20, 16),
}


def measure_gap(case: Case, dtype: torch.dtype, device: str) -> float:
    """The largest difference; for numbers beyond 1, relative to them.

    What lies beyond a row's end is huge, so that a column too many is not overlooked.
    """
    from groupwise.engines.static_cache.kernels import attend_step

    heads, out = 2, case.value_size or case.size
    draw = torch.Generator().manual_seed(case.queries + case.size)
    last = torch.tensor(LASTS)
    key = torch.randn(len(LASTS) + 1, heads, WIDTH + 20, case.size, generator=draw)
    value = torch.randn(len(LASTS) + 1, heads, WIDTH + 20, out, generator=draw)
    for row, column in enumerate(LASTS):
        key[row, :, column + 1 :] = 100
        value[row, :, column + 1 :] = 1e4
    # As a model hands them over: heads behind the one token.
    query = torch.randn(len(LASTS), 1, heads * case.queries, case.size, generator=draw).transpose(1, 2)
    query, key, value = (tensor.to(dtype) for tensor in (query, key[: len(LASTS)], value[: len(LASTS)]))
    scaling = 1.5 * case.size**-0.5
    attended = attend_step(
        query[:, :, 0].to(device),
        key.to(device)[:, :, :WIDTH],
        value.to(device)[:, :, :WIDTH],
        last.to(device),
        scaling=scaling,
        softcap=case.softcap,
        splits=case.splits,
    )
    assert attended.dtype == dtype
    expected = compute_expected(query[:, :, 0], key, value, last, scaling, case.softcap)
    return float(((attended.cpu().double() - expected).abs() / expected.abs().clamp(min=1)).max())


def compute_expected(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    last: torch.Tensor,
    scaling: float,
    softcap: float | None,
) -> torch.Tensor:
    """Softmax attention by its definition, a row and a query at a time, in double precision."""
    rows = []
    for row, column in enumerate(last.tolist()):
        seen = min(column + 1, WIDTH)
        for head in range(query.shape[1]):
            at = head * key.shape[1] // query.shape[1]
            scores = key[row, at, :seen].double() @ query[row, head].double() * scaling
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            rows.append(scores.softmax(0) @ value[row, at, :seen].double())
    return torch.stack(rows).view(*query.shape[:2], -1)


def mend_interpreter() -> None:
    """Triton's interpreter counts loops with arrays of one number, which NumPy from 2.4 on takes for no number."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_with_index


def main() -> None:
    mend_interpreter()
    gaps = {
        name: {"case": asdict(case), "gap": measure_gap(case, torch.float32, "cpu")} for name, case in CASES.items()
    }
    sys.stdout.write(json.dumps(gaps))


if __name__ == "__main__":
    main()
