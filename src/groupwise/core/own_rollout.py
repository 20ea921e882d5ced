"""Which steps are compared only with other steps of their own rollout. Axes: S steps, M groups."""

from __future__ import annotations

import numpy as np

from groupwise.core.credit import Comparison, Mixture, Shared, Trace
from groupwise.core.segments import BoolArray, IntArray, Segments
from groupwise.core.step_table import StepTable


def find_own_rollout_only(table: StepTable, trace: Trace) -> BoolArray | None:
    """Which compared steps have no other rollout in any of their groups (S); None if a trace does not say.

    Worked example: two rollouts visit the states a b b and a c d. Both steps at b are compared, each with the other
    one alone, so both are marked. The steps at a are compared with each other, across rollouts: they are not.
    """
    meets = meets_others(table, trace)
    return None if meets is None else trace.compared & ~meets


def meets_others(table: StepTable, trace: Trace) -> BoolArray | None:
    """Which steps some comparison puts beside a step of another rollout (S); None if a trace does not say."""
    if isinstance(trace, Comparison):
        if trace.of is not None and trace.divides_only:
            return meets_others(table, trace.of)
        return trace.compared & spans_rollouts(table, trace.label)
    if isinstance(trace, Mixture):
        of_terms = [meets_others(table, term) for term in trace.terms]
        known = [meets for meets in of_terms if meets is not None]
        meets = np.any([np.zeros(len(table), dtype=np.bool_), *known], axis=0)
        return meets if len(known) == len(of_terms) or meets[trace.compared].all() else None
    if isinstance(trace, Shared):
        own = meets_others(table, trace.of)
        return None if own is None else own | spans_rollouts(table, trace.label)
    tell = getattr(trace, "meets_others", None)
    return None if tell is None else tell(table)


def spans_rollouts(table: StepTable, label: IntArray) -> BoolArray:
    """Which steps are in a group that holds steps of two or more rollouts (S)."""
    groups = Segments.of(label)
    is_shared_M = ~groups.is_constant(table.attempt.astype(np.float64))
    return np.append(is_shared_M, False)[groups.label]
