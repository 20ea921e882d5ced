"""Who is compared with whom (groupers), and who may train (filters). Every group lies within one task."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.groups.by_branch import ByBranch
from groupwise.groups.by_edge import ByEdge
from groupwise.groups.by_history import ByHistory
from groupwise.groups.by_role import ByRole
from groupwise.groups.by_state import ByState
from groupwise.groups.by_task import ByAttempt, ByTask
from groupwise.groups.filters import DropPivot, DropSolved, OverlongMask, Staleness, ZeroSpread

GROUPERS: dict[str, type[Part]] = {
    "by_task": ByTask,
    "by_attempt": ByAttempt,
    "by_state": ByState,
    "by_history": ByHistory,
    "by_role": ByRole,
    "by_branch": ByBranch,
    "by_edge": ByEdge,
}

FILTERS: dict[str, type[Part]] = {
    "drop_pivot": DropPivot,
    "drop_solved": DropSolved,
    "overlong_mask": OverlongMask,
    "staleness": Staleness,
    "zero_spread": ZeroSpread,
}

__all__ = [
    "FILTERS",
    "GROUPERS",
    "ByAttempt",
    "ByBranch",
    "ByEdge",
    "ByHistory",
    "ByRole",
    "ByState",
    "ByTask",
    "DropPivot",
    "DropSolved",
    "OverlongMask",
    "Staleness",
    "ZeroSpread",
]
