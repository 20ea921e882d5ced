"""Lay samples out the fastest way that a model runs exactly: packs, or padded rows where packs would not be."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import nn

from groupwise.batching.pack import Pack, pack
from groupwise.batching.padded_rows import PaddedRows, pad_within_budget
from groupwise.core.errors import ConfigError
from groupwise.core.sample import Sample
from groupwise.models.causal_lm import CausalLM
from groupwise.models.logps import check_packs


def lay_out(
    model: nn.Module, samples: Sequence[Sample], *, token_budget: int, share: bool = True, unit: str = "sample"
) -> list[Pack] | list[PaddedRows]:
    """Samples as micro-batches: prefix-shared or packed; padded rows, with a warning, for a model that cannot.

    A model is put to the test the first time it is met: log-probs of a few packed tokens are compared with its own.

    Args:
        model: What will read them.
        samples: Every sample of a batch.
        token_budget: Most tokens of a micro-batch.
        share: Whether equal beginnings are computed once.
        unit: What lies whole in one micro-batch.
    """
    fault = find_packing_fault(model, longest=max((len(sample.token_ids) for sample in samples), default=1))
    if fault is None:
        return pack(samples, token_budget=token_budget, share=share, unit=unit)
    warnings.warn(f"{fault}; training goes on with padded rows, which take longer", stacklevel=2)
    return pad_within_budget(samples, token_budget=token_budget, unit=unit)


def find_packing_fault(model: nn.Module, *, longest: int) -> str | None:
    """Why a model cannot read packs with sequences of a length, in words; None = it can."""
    halves = CausalLM.of(model)  # what has no head to speak of runs in no layout
    try:
        halves.check_tree(longest)
        check_packs(model)
    except ConfigError as error:
        return str(error)
    return None
