from __future__ import annotations

from typing import Any

import numpy as np

from groupwise.credit import AmongSolved, Deviation, Relative
from groupwise.data.column_checks import quote_value
from groupwise.data.segments import FloatArray
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, ClippedChannels, PolicyLoss, SequenceMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, Part
from groupwise.system.errors import RecordError


@method
def hdpo(
    *, tool_weight: Finite = 0.15, calls: str | None = "num_calls", solved_above: Finite = 0.5, eps: Finite = 1e-6
) -> Algorithm:
    """HDPO (Metis, 2026, arXiv:2604.08545, and its release): GRPO, plus an advantage for right rollouts with fewer tool
    calls.

    loss = L_clip(A) + tool_weight * L_clip(A_tool);   A_tool = z-score of 1 / (T + 1) among the right, else 0

    Choices: right is a score above `solved_above`. T sums the column `calls`, a step info of environments with tools;
    with `calls=None` every step but the last is a call. The source's reward, 0.9 for a right answer and 0.1 for its
    format, is `outcome` and `format` in `rewards`. Two losses are summed, as released, instead of one loss of the sum.
    Clip 0.2; each answer counts the same (ours); no KL. The plan `top_up` and filters that drop solved tasks are
    errors, because tool economy is learned from solved tasks.
    """
    advantage = grpo(eps=eps).advantage
    if not tool_weight:
        return Algorithm(advantage=advantage, loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()))
    economy = Relative(by=AmongSolved(above=solved_above), of=ToolEconomy(calls=calls), scale=Deviation(eps=eps))
    return Algorithm(
        advantage=advantage,
        channels={"economy": economy},
        loss=PolicyLoss(surrogate=ClippedChannels(weights={"economy": tool_weight}), aggregate=SequenceMean()),
    )


class ToolEconomy(Part, slot="signal"):
    """1 / (tool calls of the rollout + 1), the same for all its steps.

        r = 1 / (T + 1),   T = tool calls of the rollout

    Source: HDPO (2026, arXiv:2604.08545) and its release, which rewards only right answers; here the grouper
    `among_solved` selects them. Choices: entries of the column `calls` are numbers, or lists that are counted; a step
    without an entry made no call.
    """

    calls: str | None = "num_calls"
    """The column with the tool calls of a step; None = every step of a rollout but the last is one."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset() if self.calls is None else frozenset({self.calls})

    def __call__(self, table: StepTable) -> FloatArray:
        if self.calls is None:
            num_calls_A = table.rollouts.size - 1.0
        else:
            entries = table.column(self.calls).tolist()
            num_calls_A = table.rollouts.sum(
                np.array([self._count(table, step, entry) for step, entry in enumerate(entries)], dtype=np.float64)
            )
        return table.rollouts.spread(1.0 / (num_calls_A + 1.0))

    def _count(self, table: StepTable, step: int, entry: Any) -> float:
        if isinstance(entry, list | tuple):
            return float(len(entry))
        if entry is None or entry != entry:  # NaN is how tables of other libraries write None
            return 0.0
        if isinstance(entry, bool | int | float) and 0 <= entry < float("inf"):
            return float(entry)
        raise RecordError(
            f"{table.describe_step(step)}: the column {self.calls!r} holds {quote_value(entry)}, which is no number of "
            "tool calls; give a number from 0 on, a list of the calls, or None"
        )
