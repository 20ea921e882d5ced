from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt

from groupwise.credit import (
    Blend,
    ByHistory,
    ByTask,
    LeaveOneOut,
    Mean,
    NoScale,
    Relative,
    StepTrace,
    TemporalDifferences,
    Term,
    centre_values,
)
from groupwise.data.credit import Credit, Derivation, spans_rollouts
from groupwise.data.segments import BoolArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.methods.gagpo import make_step_rewards_to_go, make_temporal_algorithm
from groupwise.methods.method import AfterLimit, ScaledBy, method
from groupwise.parts import Algorithm, Finite, GrouperPart, NotNegative, Part, Share, SignalPart, name_of


@method
def hgae(
    *,
    depth: NonNegativeInt = 2,
    alpha: Annotated[float, Field(ge=0, le=64)] = 1.0,
    gamma: Share = 0.95,
    lam: Share = 0.95,
    leave_out: bool = False,
    scale_by: ScaledBy = "task",
    truncated: AfterLimit = "zero",
    invalid_penalty: Finite = 0.1,
) -> Algorithm:
    """HGAE (ours, after arXiv:2602.22817 and arXiv:2605.13217): GAGPO with HGPO's levels of history as the value.

    V_t = sum_k w_k V_k / sum_k w_k,   V_k = mean return of steps with equal (s_{t-k}, ..., s_t),   w_k = (k+1)^alpha
    delta_t = r_t + gamma V_{t+1} - V_t,   A = sum_l (gamma lam)^l delta_{t+l}

    Choices: levels on which the step is the only member, or has no such history, are left out; if all are, the value is
    the step's own return. `leave_out=True` takes each mean over the other steps. The rest as for `gagpo`, which is
    depth 0.
    """
    returns = make_step_rewards_to_go(gamma, invalid_penalty)
    baseline = LeaveOneOut() if leave_out else Mean()
    levels = [
        Relative(by=ByHistory(depth=k), of=returns, baseline=baseline, scale=NoScale(), average="step")
        for k in range(depth + 1)
    ]
    above_value = Blend(terms=tuple(Term(weight=float(k + 1) ** alpha, of=of) for k, of in enumerate(levels)))
    credit = TemporalDifferences(of=above_value, returns=returns, gamma=gamma, lam=lam, truncated=truncated)
    return make_temporal_algorithm(credit, scale_by)


@method
def shrunk_hgae(
    *,
    depth: NonNegativeInt = 2,
    strength: NotNegative = 8.0,
    gamma: Share = 1.0,
    lam: Share = 0.0,
    scale_by: ScaledBy = "task",
    truncated: AfterLimit = "zero",
    invalid_penalty: Finite = 0.1,
) -> Algorithm:
    """Shrunk HGAE (ours, ADR 39): GAE with values for which small groups borrow from larger ones.

    V_t = the finest of V_k = (n_k mean_k + strength V_{k-1}) / (n_k + strength),   V_{-1} = mean over the task's steps
    delta_t = r_t + gamma V_{t+1} - V_t,   A_t = sum_l (gamma lam)^l delta_{t+l}

    n_k steps share the state and the k states before it, mean_k is their mean return.

    Choices: strength 8 and lam 0 had the smallest error of the advantages in corridors that hide 0 to 3 bits, measured
    by hand without a file (ADR 39); from 4 to 16 it hardly matters. The value of the only member of a group is mostly
    that of coarser levels, where HGAE has its own return. With gamma 1, a task that all rollouts solved alike, with one
    reward at the end, gets exactly 0. With a smaller gamma, or with rewards on the way, steps differ from the task's
    mean although rollouts do not. The rest as for `gagpo`.
    """
    returns = make_step_rewards_to_go(gamma, invalid_penalty)
    levels = (ByTask(), *(ByHistory(depth=k) for k in range(depth + 1)))
    above_value = Shrunk(levels=levels, of=returns, strength=strength)
    credit = TemporalDifferences(of=above_value, returns=returns, gamma=gamma, lam=lam, truncated=truncated)
    return make_temporal_algorithm(credit, scale_by)


class Shrunk(Part, slot="estimator"):
    """Compare each step with the value of its situation; a small group has little weight beside a larger one.

        V_0 = mean of the first level's group
        V_k = (n_k * mean_k + strength * V_(k-1)) / (n_k + strength)
        credit = of - V of the finest level that the step has

    The mean of n returns has an error of their spread over sqrt(n). So the mean of few steps with much common history
    is pulled towards that of many with less, as if those were `strength` further members. It is the posterior mean of a
    normal model, in which `strength` is the variance of returns within a group over that of the groups' values around
    the coarser one.

    Source: ours; the idea is that of James and Stein (1961) and of empirical Bayes. HGPO gives fine levels more weight,
    whatever their number of steps. **Choices.** One strength for all levels, set by hand: estimated from groups of
    eight rollouts it was too uncertain (ADR 39). The step itself counts in its groups, even as the only member. A level
    on which it has no group is skipped. If it is the only member of all its groups, it is not compared and gets 0.
    """

    levels: Annotated[tuple[GrouperPart, ...], Field(min_length=1)]
    """Groupers, the coarsest first; the groups of each lie within those of the one before."""
    of: SignalPart
    """What is compared."""
    strength: NotNegative
    """How many steps the coarser value counts for; 0 = only the finest level."""

    def __call__(self, table: StepTable) -> Credit:
        signal = table.ask_once(self.of)
        labels = [table.ask_once(grouper) for grouper in self.levels]
        first = Segments.of(labels[0])
        # Relative to the coarsest mean, so a common level of returns costs no digits.
        above = centre_values(signal, first)
        value, compared = np.zeros(len(table)), np.append(first.size > 1, False)[first.label]
        for label in labels[1:]:
            groups = Segments.of(label)
            size = groups.spread(groups.size)
            pulled = (size * groups.spread(groups.mean(above)) + self.strength * value) / np.maximum(
                size + self.strength, 1.0
            )
            value = np.where(groups.label >= 0, pulled, value)
            compared |= np.append(groups.size > 1, False)[groups.label]
        values = np.where(compared, above - value, 0.0)
        return Credit.of(table, StepTrace(values=values, compared=compared, part=self))

    def meets_others(self, table: StepTable, trace: StepTrace) -> BoolArray:
        """Which steps have another rollout in one of their groups (S)."""
        shared: BoolArray = np.any([spans_rollouts(table, table.ask_once(level)) for level in self.levels], axis=0)
        return shared

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        signal, labels = self.of(table).tolist(), [grouper(table).tolist() for grouper in self.levels]
        own, value, strength, lines = signal[step], 0.0, 0.0, []
        for grouper, label in zip(self.levels, labels, strict=True):
            members = [place for place in range(len(table)) if label[place] == label[step] >= 0]
            if members:
                total = math.fsum(signal[place] for place in members)
                value = (total + strength * value) / (len(members) + strength)
                lines.append(f"{name_of(grouper)}: {len(members)} steps, mean {total / len(members):.6g}: {value:.6g}")
            strength = self.strength
        credit = own - value if trace.compared[step] else 0.0
        lines.append(f"{own:.9g} - {value:.9g} = {credit:.6g}" if trace.compared[step] else "nobody else: 0")
        everybody = [place for place in range(len(table)) if labels[0][place] == labels[0][step] >= 0]
        members_of_all = tuple((place, signal[place]) for place in everybody)
        return Derivation(value=credit, formula="; ".join(lines), members=members_of_all)
