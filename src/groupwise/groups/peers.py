"""Whether the steps of a single rollout may be a group. Axis: S steps."""

from __future__ import annotations

from typing import Literal

import numpy as np

from groupwise.core.own_rollout import spans_rollouts
from groupwise.core.segments import NOT_COMPARABLE, IntArray
from groupwise.core.step_table import StepTable

Peers = Literal["any", "other_rollouts"]
"""Who has to be in a group: any two steps, as published, or steps of two rollouts."""


def require_peers(table: StepTable, label: IntArray, peers: Peers) -> IntArray:
    """The groups that have the required members (S); the steps of all other groups are in none."""
    return label if peers == "any" else np.where(spans_rollouts(table, label), label, NOT_COMPARABLE)
