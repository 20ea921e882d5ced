"""Weights by name, as a learner gives them out: all at once, or one after the other. Without torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from groupwise.core.errors import TrainingError
from groupwise.core.text.value_words import describe_value

if TYPE_CHECKING:
    import torch


def collect_weights(
    weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
) -> dict[str, torch.Tensor]:
    """The weights as a table; TrainingError where a learner gave something else."""
    try:
        table = dict(weights)
        is_table = all(isinstance(name, str) and hasattr(value, "detach") for name, value in table.items())
    except (TypeError, ValueError):
        is_table = False
    if not is_table:
        raise TrainingError(
            f"the learner's weights() gave {describe_value(weights)}, but tensors by name, or pairs of a name and a "
            "tensor, are needed"
        )
    return table


def hash_weights(weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> str:
    """A digest of weights and their names, to the bit."""
    digest = hashlib.sha256()
    for name, value in sorted(collect_weights(weights).items()):
        plain = value.detach().cpu().contiguous()
        # NumPy knows no bfloat16; every one of its numbers is a float32.
        digest.update(name.encode())
        digest.update((plain.float() if plain.dtype.itemsize == 2 else plain).numpy().tobytes())
    return digest.hexdigest()
