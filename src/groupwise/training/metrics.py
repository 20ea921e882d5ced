"""Every metric of a run, from `metrics.toml` beside this file. Outside parts log metrics named `extra/...`."""

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
"""The unit of fractions."""
REPLICA_NUMBER = re.compile(r"^replicas/[0-9]+/")
"""The start of the name of one replica's metric."""


class Metric(NamedTuple):
    """One row of the table."""

    meaning: str
    """One sentence."""
    unit: str
    """Its unit, or the range of its values."""
    remedy: str
    """A bad value, and what to do then."""


METRICS: dict[str, Metric] = {
    name: Metric(**{"meaning": MEASURED_BY_LOSSES.get(name), **row})
    for name, row in tomllib.loads(files("groupwise.training").joinpath("metrics.toml").read_text("utf-8")).items()
}
"""Every metric that a run may log, by name."""


def find_metric(name: str) -> Metric | None:
    """The table's entry for a metric; None if it has none. A metric of a replica has its number in the name."""
    return METRICS.get(REPLICA_NUMBER.sub("replicas/N/", name))


def check_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Check the name and the value of every metric; returns them as plain numbers."""
    plain: dict[str, float] = {}
    for name, value in metrics.items():
        if not is_metric(name, value):
            raise TrainingError(f"metric {name!r} is {describe_value(value)}; give a finite number, or leave it out")
        if name not in METRICS and not name.startswith(EXTRA) and find_metric(name) is None:
            names = nearest(name, METRICS, listed_by="docs/reference/metrics.md")
            raise TrainingError(
                f"metric {name!r} is not in the table of training/metrics.toml; {names}. Outside parts log metrics "
                f"named {EXTRA}..."
            )
        plain[name] = value.item() if isinstance(value, np.generic) else value
    return plain
