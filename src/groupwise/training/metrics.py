"""Every metric of a run, from `metrics.toml` beside this file; what is not in that table cannot be logged.

A part from elsewhere names its own `extra/...`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from groupwise.learner.protocol import EXTRA, is_metric
from groupwise.losses import METRICS as MEASURED_BY_LOSSES
from groupwise.system.errors import TrainingError, nearest
from groupwise.system.text import describe_value

SHARE = "0 to 1"
"""The unit of shares."""
REPLICA_NUMBER = re.compile(r"^replicas/[0-9]+/")
"""How the name of a metric of one replica begins."""


class Metric(NamedTuple):
    """What a metric is."""

    meaning: str
    """One sentence."""
    unit: str
    """Its unit, or where its values lie."""
    remedy: str
    """What a bad value looks like, and what to do then."""


METRICS: dict[str, Metric] = {
    name: Metric(**{"meaning": MEASURED_BY_LOSSES.get(name), **row})
    for name, row in tomllib.loads(files("groupwise.training").joinpath("metrics.toml").read_text("utf-8")).items()
}
"""Every metric that a run may log, by name."""


def find_metric(name: str) -> Metric | None:
    """What a metric is, by its name; None where the table has none of it. Those of a replica have its number."""
    return METRICS.get(REPLICA_NUMBER.sub("replicas/N/", name))


def check_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Refuse a metric whose name the table does not have, or whose value is no number; the metrics as plain numbers."""
    for name, value in metrics.items():
        if not is_metric(name, value):
            raise TrainingError(f"metric {name!r} is {describe_value(value)}; give a finite number, or leave it out")
        if find_metric(name) is None and not name.startswith(EXTRA):
            raise TrainingError(
                f"metric {name!r} is not in the table of training/metrics.toml; {nearest(name, METRICS)}. A part "
                f"from elsewhere names its own {EXTRA}..."
            )
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in metrics.items()}
