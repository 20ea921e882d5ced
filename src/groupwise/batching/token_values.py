"""Values of samples as columns over the trained tokens of a layout.

Axes: N samples, T trained tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from groupwise.batching.layout import Layout
from groupwise.core.errors import RecordError


def spread_over_tokens(layout: Layout, values: Sequence[float | Sequence[float]]) -> torch.Tensor:
    """One float32 a trained token (T), in the order of the layout.

    Args:
        layout: Samples as tensors.
        values: For each sample handed to the layout (N), a number for all its tokens or one for each of them.

    For two samples of two tokens in one pack, `column(pack, [0.5, (1.0, 2.0)])` is [0.5, 0.5, 1.0, 2.0].
    """
    num_tokens = torch.bincount(layout.sample.cpu(), minlength=len(values)).tolist()
    listed: list[float] = []
    for number in layout.members:
        value = values[number]
        if not isinstance(value, Sequence):
            listed.extend([value] * num_tokens[number])
        elif len(value) == num_tokens[number]:
            listed.extend(value)
        else:
            raise RecordError(
                f"sample {number}: {len(value)} values for {num_tokens[number]} trained tokens; give one per token",
                row=number,
            )
    return torch.tensor(listed, dtype=torch.float32, device=layout.sample.device)
