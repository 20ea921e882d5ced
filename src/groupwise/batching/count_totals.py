"""What the denominators of a loss count, over all samples of an update."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.core.pairs import Pair
from groupwise.core.sample import Sample
from groupwise.core.totals import Totals


def count_totals(samples: Sequence[Sample], *, max_tokens: int, pairs: Sequence[Pair] = ()) -> Totals:
    """Count the samples of an update once, before any split into micro-batches.

    Args:
        samples: Every sample of the update; those that train on no token are not counted.
        max_tokens: The most tokens a response may have, by which some losses divide.
        pairs: Pairs of trajectories; those of which a member does not train are not counted.
    """
    return Totals.count(
        tokens=[sample.num_trained for sample in samples],
        trajectory=[sample.trajectory for sample in samples],
        step=[sample.step for sample in samples],
        group=[sample.group for sample in samples],
        max_tokens=max_tokens,
        pairs=pairs,
    )
