"""Which of the sampled tokens of a layout train, where a sample says that not all do.

Axis: R sampled tokens of all samples, up to the last of each that trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from groupwise.batching.forest import Ragged
from groupwise.core.sample import Sample
from groupwise.core.segments import BoolArray


def find_trained_tokens(samples: Sequence[Sample], targets: Ragged) -> BoolArray | None:
    """Whether each of the targets trains (R), for samples that each train; None = all do.

    `targets` are the samples' `computed_response_ids`, one sample after the other.
    """
    if all(sample.trained is None for sample in samples):
        return None
    lengths = targets.length.tolist()
    trains = (
        (True,) * length if sample.trained is None else sample.trained[:length]
        for sample, length in zip(samples, lengths, strict=True)
    )
    return np.fromiter(chain.from_iterable(trains), dtype=np.bool_, count=len(targets.flat))
