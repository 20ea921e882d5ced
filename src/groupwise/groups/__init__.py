"""Groupers (who is compared with whom), admissions (who at all), filters (who may train), replay (which past attempts).

Every group lies within one task, but for those of `ByPlayer`.
"""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.groups.admissions import AtMost, WithoutTruncated
from groupwise.groups.by_branch import ByBranch
from groupwise.groups.by_edge import ByEdge
from groupwise.groups.by_history import ByHistory
from groupwise.groups.by_role import ByPlayer, ByRole
from groupwise.groups.by_state import ByState
from groupwise.groups.by_task import ByAttempt, ByTask
from groupwise.groups.cross_context_replay import CrossContextReplay
from groupwise.groups.drop_pivot import DropPivot
from groupwise.groups.filters import OverlongMask, SmallCredit, Staleness, ZeroSpread
from groupwise.groups.history_keyed_replay import HistoryKeyedReplay
from groupwise.groups.scored_steps import ScoredSteps
from groupwise.groups.selective_buffer import SelectiveBuffer
from groupwise.groups.solved_tasks import AmongSolved, DropFailed, DropSolved

GROUPERS: dict[str, type[Part]] = {
    "by_task": ByTask,
    "by_attempt": ByAttempt,
    "by_state": ByState,
    "by_history": ByHistory,
    "by_role": ByRole,
    "by_player": ByPlayer,
    "by_branch": ByBranch,
    "by_edge": ByEdge,
    "among_solved": AmongSolved,
}

ADMISSIONS: dict[str, type[Part]] = {"at_most": AtMost, "without_truncated": WithoutTruncated}

FILTERS: dict[str, type[Part]] = {
    "drop_failed": DropFailed,
    "drop_pivot": DropPivot,
    "drop_solved": DropSolved,
    "overlong_mask": OverlongMask,
    "scored_steps": ScoredSteps,
    "small_credit": SmallCredit,
    "staleness": Staleness,
    "zero_spread": ZeroSpread,
}

REPLAYS: dict[str, type[Part]] = {
    "cross_context_replay": CrossContextReplay,
    "history_keyed_replay": HistoryKeyedReplay,
    "selective_buffer": SelectiveBuffer,
}

__all__ = [
    "ADMISSIONS",
    "FILTERS",
    "GROUPERS",
    "REPLAYS",
    "AmongSolved",
    "AtMost",
    "ByAttempt",
    "ByBranch",
    "ByEdge",
    "ByHistory",
    "ByPlayer",
    "ByRole",
    "ByState",
    "ByTask",
    "CrossContextReplay",
    "DropFailed",
    "DropPivot",
    "DropSolved",
    "HistoryKeyedReplay",
    "OverlongMask",
    "ScoredSteps",
    "SelectiveBuffer",
    "SmallCredit",
    "Staleness",
    "WithoutTruncated",
    "ZeroSpread",
]
