"""What of an update must lie whole in one micro-batch: single samples, all samples of a step, or of a trajectory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from groupwise.core.errors import ConfigError, nearest
from groupwise.core.sample import Sample
from groupwise.core.segments import IntArray


def label_units(samples: Sequence[Sample], unit: str) -> IntArray:
    """Label of each sample's unit (N), equal within a unit, in the order they first come."""
    names: dict[str, list[Hashable]] = {
        "sample": list(range(len(samples))),
        "step": [(sample.trajectory, sample.step) for sample in samples],
        "trajectory": [sample.trajectory for sample in samples],
    }
    if unit not in names:
        raise ConfigError(f"there is no unit {unit!r}; {nearest(unit, names)}")
    labels: dict[Hashable, int] = {}
    return np.array([labels.setdefault(name, len(labels)) for name in names[unit]], dtype=np.int64)
