"""Estimators: a step's number minus its group's level, over its group's spread (`Relative`), and what is built on it.

Axes: S steps, C members of the statistics (steps, or rollouts within a group, and virtual members), M groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

import numpy as np
from pydantic import Field, NonNegativeFloat

from groupwise.credit.baselines import Mean
from groupwise.credit.scales import Deviation
from groupwise.credit.signals import discount
from groupwise.data.credit import Comparison, Credit, Derivation, Trace, WeightedSum, meets_others
from groupwise.data.records import StopReason
from groupwise.data.segments import BoolArray, FloatArray, Segments, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Finite, NotNegative, Part, Share, name_of
from groupwise.parts.slots import BaselinePart, EstimatorPart, GrouperPart, ScalePart, SignalPart
from groupwise.system.errors import RecordError


class Relative(Part, slot="estimator"):
    """Compare each step's signal with its group's.

        credit = (signal - baseline(group)) / scale(group)

    If all members are equal, all get exactly 0 (with `NoBaseline` they keep their values). A group of one follows
    `alone`. A step in no group gets 0 and is not compared.
    """

    by: GrouperPart
    """Which steps are compared with each other."""
    of: SignalPart
    """What is compared."""
    baseline: BaselinePart = Mean()
    """What is subtracted."""
    scale: ScalePart = Deviation()
    """What it is divided by."""
    mixed_scale: ScalePart | None = None
    """The scale of groups with off-policy members; None = the same `scale` (R^3 tempers these groups)."""
    average: Literal["rollout", "step"] = "rollout"
    """What counts once in the statistics: each rollout (with the mean of its steps in the group), or each step."""
    alone: Literal["zero", "raw", "error"] = "zero"
    """What the only member of a group gets: 0, its raw signal (as several released codes do), or an error."""
    virtual: tuple[float, ...] = ()
    """Values of made-up members that join every group's statistics and get no advantage (NGRPO)."""
    virtual_is_company: bool = True
    """Whether one real member together with made-up ones is a comparison; if not, the real member counts as the only
    one.
    """

    def __call__(self, table: StepTable) -> Credit:
        signal, label = table.ask_once(self.of), table.ask_once(self.by)
        # The member that each step is (S), and the members' values and groups (C).
        if self.average == "step":
            member, values, label_of_member = np.arange(len(label)), signal, label
        else:
            # A rollout's steps in no group would share the label -1; each rollout keeps them apart from its others.
            cells = Segments.of(pair_labels(label + 1, table.rollout))
            member, values, label_of_member = cells.label, cells.mean(signal), label[cells.first]
        groups = Segments.of(label_of_member)
        if self.virtual:
            joined = np.append(groups.label, np.repeat(np.arange(len(groups)), len(self.virtual)))
            values, groups = np.append(values, np.tile(self.virtual, len(groups))), Segments.of(joined)
        centred = self.baseline(values, groups)
        scale, group = self.scale(values, groups), groups.label[member]
        if self.mixed_scale is not None and table.off_policy.any():
            is_mixed = np.zeros(len(groups) + 1, dtype=np.bool_)  # the last one is for steps in no group
            is_mixed[group[table.off_policy]] = True
            scale = np.where(is_mixed[:-1], self.mixed_scale(values, groups), scale)
        distance = (signal - values[member]) + centred[member]
        made_up = 0 if self.virtual_is_company else len(self.virtual)
        compared = np.append(groups.size - made_up > 1, False)[group]
        scale_of_step = np.append(scale, np.nan)[group]
        # If all members are equal, every step gets 0, even if a rollout's own steps differ from its mean.
        flat = np.append(groups.sum((centred != 0).astype(np.float64)) == 0, False)[group]
        divisor = np.where(compared & ~flat & (scale_of_step > 0), scale_of_step, np.inf)
        lone = (group >= 0) & ~compared
        if self.alone == "error" and lone.any():
            raise RecordError(
                f"{table.describe_step(int(np.flatnonzero(lone)[0]))}: no other step in its group "
                f"({name_of(self.by)}); add rollouts, or set alone to 'zero' or 'raw'"
            )
        credit = np.where(compared, distance / divisor + 0.0, np.where(lone & (self.alone == "raw"), signal, 0.0))
        trace = Comparison(
            values=credit,
            compared=compared,
            signal=signal,
            label=group,
            baseline=np.where(compared, signal - distance, np.nan),
            scale=np.where(compared, scale_of_step, np.nan),
            part=self,
        )
        return Credit.of(table, trace)


# Advantages made of other advantages: weighted sums, and blends over levels.


def weigh_credit(table: StepTable, inner: Trace, weight: FloatArray, part: Part) -> Credit:
    trace = WeightedSum(
        values=inner.values * weight, compared=inner.compared, weights=(weight,), terms=(inner,), part=part
    )
    return Credit.of(table, trace)


def add_up(table: StepTable, terms: Sequence[Trace], weights: Sequence[FloatArray], part: Part) -> Credit:
    """Sum of terms, each times its weight per step (S). A step is compared if any term compared it."""
    trace = WeightedSum(
        values=np.sum([weight * term.values for weight, term in zip(weights, terms, strict=True)], axis=0),
        compared=np.any([term.compared for term in terms], axis=0),
        weights=tuple(weights),
        terms=tuple(terms),
        part=part,
    )
    return Credit.of(table, trace)


class Term(Part):
    """One term of a sum or a blend."""

    weight: Finite
    """Its weight."""
    of: EstimatorPart
    """Its credit."""


class Sum(Part, slot="estimator"):
    """Add up weighted terms: credit = sum_i weight_i * credit_i. A term that did not compare the step adds its value,
    0.
    """

    terms: Annotated[tuple[Term, ...], Field(min_length=1)]
    """What is added."""

    def __call__(self, table: StepTable) -> Credit:
        traces = [term.of(table).trace for term in self.terms]
        return add_up(table, traces, [np.full(len(table), term.weight) for term in self.terms], self)


class Blend(Part, slot="estimator"):
    """Average the terms that are present for a step, by weight.

        credit = sum_i w_i * credit_i / (sum_i w_i + eps),   i over the terms present

    Source: HGPO, arXiv:2602.22817, aggregation over levels. Choices: a term is present if it compared the step. In the
    released code a term is absent if its advantage is exactly 0 (`absent="zero_valued"`), so a level on which the step
    was exactly average is left out. That code also adds 1e-6 to the denominator.
    """

    terms: Annotated[tuple[Term, ...], Field(min_length=1)]
    """What is averaged; weights are relative."""
    absent: Literal["not_compared", "zero_valued"] = "not_compared"
    """Which terms are left out of a step's average."""
    eps: NonNegativeFloat = 0.0
    """Added to the sum of the weights present."""

    def __call__(self, table: StepTable) -> Credit:
        traces, weights = [], []
        for term in self.terms:
            trace = term.of(table).trace
            present = trace.compared if self.absent == "not_compared" else trace.values != 0
            traces.append(trace)
            weights.append(np.where(present, term.weight, 0.0))
        total = np.sum(weights, axis=0) + self.eps
        return add_up(table, traces, list(np.array(weights) / np.where(total > 0, total, np.inf)), self)


class RootMeanSquare(Part, slot="scale"):
    """How far members lie from 0: the root of their mean square, plus eps.

        scale = sqrt(sum_i x_i^2 / n) + eps

    For numbers that are differences already and are not centred. An advantage divided by it is at most sqrt(n).
    """

    eps: NotNegative = 1e-6
    """Added to the root."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.sqrt(groups.sum(values**2) / groups.size) + self.eps


class Scaled(Part, slot="estimator"):
    """Divide advantages by the spread of their group, without centring them.

        credit = of / scale(of over the group)

    For advantages that are comparisons already, such as temporal differences: their mean over a group need not be 0 and
    has a meaning. So the spread is taken about 0. A standard deviation about the mean would be nearly 0 if all did
    equally well. A step that is the only member of its group, or has no group, gets 0 and is not compared.
    """

    of: EstimatorPart
    """The advantages that are divided."""
    by: GrouperPart
    """The groups over which the spread is taken."""
    scale: ScalePart = RootMeanSquare()
    """What it is divided by."""

    def __call__(self, table: StepTable) -> Credit:
        inner, groups = self.of(table).trace, Segments.of(table.ask_once(self.by))
        in_company = np.append(groups.size > 1, False)[groups.label]
        scale = groups.spread(self.scale(inner.values, groups), np.nan)
        divisor = np.where(in_company & (scale > 0), scale, np.inf)
        trace = Comparison(
            values=inner.values / divisor + 0.0,
            compared=inner.compared & in_company,
            signal=inner.values,
            label=groups.label,
            baseline=np.zeros(len(table)),
            scale=np.where(in_company, scale, np.nan),
            part=self,
            of=inner,
            divides_only=True,
        )
        return Credit.of(table, trace)


class Whitened(Part, slot="estimator"):
    """Shift and scale advantages to mean 0 and variance 1 over all tokens of the table that train, across tasks.

        A = (v - mean_tok) / sqrt(var_tok + eps),   var_tok with Bessel's correction

    Every token of a step has the step's value, so a step counts `tokens` times; without that column, once. Steps that
    do not train (column `trains`, or filters) are shifted and scaled like the others, but do not count.

    Source: REINFORCE++, arXiv:2501.03262, as verl computes it. This part mixes tasks by design. If all values that
    train are equal, every step gets exactly 0. Fewer than two tokens that train give 0 and no comparison.

    **Choices.** Tokens that a `token_credit` part masks do count. That part runs after the advantages are known and may
    depend on them.
    """

    mixes_tasks: ClassVar[bool] = True
    of: EstimatorPart
    """The advantages that are whitened."""
    eps: NonNegativeFloat = 1e-8
    """Added to the variance."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        tokens, total = table.trained_tokens, float(table.trained_tokens.sum())
        enough = total >= 2
        # Relative to one value that counts, so that equal values give exactly 0.
        counts = tokens > 0
        anchor = inner.values[int(np.argmax(counts))] if len(table) else 0.0
        distance = inner.values - anchor
        distance = distance - (tokens @ distance / total if enough else distance)
        variance = float(tokens @ distance**2) / (total - 1) if enough else 0.0
        scale = float(np.sqrt(variance + self.eps)) or 1.0
        trace = Comparison(
            values=distance / scale if distance[counts].any() else np.zeros(len(table)),
            compared=np.full(len(table), enough),
            signal=inner.values,
            label=np.zeros(len(table), dtype=np.int64),
            baseline=inner.values - distance,
            scale=np.full(len(table), scale),
            part=self,
            of=inner,
        )
        return Credit.of(table, trace)


class TemporalDifferences(Part, slot="estimator"):
    """Advantage of a step = the change that it made in the value, plus a fading fraction of later changes.

        V_t     = R_t - D_t,   D = the credit of `of`, a return less the value of its situation
        delta_t = r_t + gamma * V_(t+1) - V_t,   V = 0 after the end,   r_t = R_t - gamma * R_(t+1)
        A_t     = delta_t + gamma * lam * A_(t+1)

    It is computed as A_t = D_t - gamma * (1 - lam) * (D_(t+1) + gamma * lam * D_(t+2) + ...). This is the same, and a
    common level of returns costs no digits.

    Source: GAE (Schulman et al. 2015, arXiv:1506.02438), with values of groups instead of a critic's, as in GAGPO
    (arXiv:2605.13217). **Choices.** The value of a step that `of` does not compare is its own return. After a rollout
    that a limit cut off, the value is 0, or that of its last state again (`truncated="value"`, reads the column
    `stop`). lam = 1 is `of` itself. A step is compared if a group has measured any of the values in it.
    """

    of: EstimatorPart
    """Returns minus the values of their situations, in units of the return: `relative` with `no_scale`, or a blend."""
    returns: SignalPart
    """The discounted return that `of` compares."""
    gamma: Share
    """Discount from one step to the next, that of `returns`."""
    lam: Share
    """Fraction of the next step's advantage that is added: 0 = one difference, 1 = everything that followed."""
    truncated: Literal["zero", "value"] = "zero"
    """The value after a rollout that a limit cut off: 0, or the value of its last state."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        values = inner.values - self.gamma * (1 - self.lam) * self._sum_later(table, inner.values)
        if self.truncated == "value":
            expected = self._expect_after(table, inner)
            values = values + self.gamma * discount(expected, table.rollout, self.gamma * self.lam)
        reached = self._find_reached(table, inner.compared)
        return Credit.of(table, StepTrace(values=values, compared=reached, of=inner, part=self))

    def _expect_after(self, table: StepTable, inner: Trace) -> FloatArray:
        """The value after each step that a limit cut off (S); 0 for all others."""
        if self.truncated == "zero":
            return np.zeros(len(table))
        is_cut = table.column("stop") == StopReason.TRUNCATED
        return np.where(is_cut, table.ask_once(self.returns) - inner.values, 0.0)

    def _find_reached(self, table: StepTable, marked: BoolArray) -> BoolArray:
        """Which steps have an advantage that contains the value of a marked step (S)."""
        seen = marked.astype(np.float64)
        reached = marked | (self.gamma * (1 - self.lam) * self._sum_later(table, seen) > 0)
        if self.truncated == "value":
            seen_end = np.where(table.column("stop") == StopReason.TRUNCATED, seen, 0.0)
            reached |= self.gamma * discount(seen_end, table.rollout, self.gamma * self.lam) > 0
        return reached

    def _sum_later(self, table: StepTable, surprises: FloatArray) -> FloatArray:
        """Sum over the steps after each one, discounted by gamma * lam (S); 0 for the last step of a rollout."""
        sums = discount(surprises, table.rollout, self.gamma * self.lam)
        is_followed = table.rollout[1:] == table.rollout[:-1]
        return np.append(np.where(is_followed, sums[1:], 0.0), np.zeros(len(sums[:1])))

    def meets_others(self, table: StepTable, trace: StepTrace) -> BoolArray | None:
        """Which steps have a value in their advantage that another rollout took part in (S)."""
        inner = None if trace.of is None else meets_others(table, trace.of)
        return None if inner is None else self._find_reached(table, inner)

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        assert trace.of is not None, "it is made of other credit"
        path = [place for place in range(step, len(table)) if table.rollout[place] == table.rollout[step]]
        all_returns, expected = self.returns(table), self._expect_after(table, trace.of)
        returns = [float(all_returns[place]) for place in path]
        worth = [float(all_returns[place] - trace.of.values[place]) for place in path]
        following = zip([*returns[1:], 0.0], [*worth[1:], float(expected[path[-1]])], strict=True)
        differences = [
            math.fsum((now, -self.gamma * later, self.gamma * later_worth, -value))
            for now, value, (later, later_worth) in zip(returns, worth, following, strict=True)
        ]
        shares = [(self.gamma * self.lam) ** num for num in range(len(path))]
        value = math.fsum(share * difference for share, difference in zip(shares, differences, strict=True))
        shown = " + ".join(
            f"{s:.6g} x {d:.6g}" for s, d in zip(shares, differences, strict=True) if s or s is shares[0]
        )
        return Derivation(
            value=value,
            formula=f"{shown} = {value:.6g}",
            members=tuple(zip(path, worth, strict=True)),
            terms=((1.0, trace.of),),
        )


# Traces of estimators that derive their own numbers.


class DerivesSteps(Protocol):
    """An estimator that can derive a single advantage again.

    It may also have `meets_others(table, trace)`: which steps are compared with a step of another rollout (S).
    """

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class StepTrace:
    """The values of an estimator that derives them itself (`OwnTrace`)."""

    values: FloatArray
    """Advantage of each step (S)."""
    compared: BoolArray
    """Whether the step was compared with another one (S)."""
    part: DerivesSteps
    """The estimator."""
    of: Trace | None = None
    """Trace of the advantages that these were made of."""

    def derive(self, table: StepTable, step: int) -> Derivation:
        return self.part.derive(table, self, step)

    def meets_others(self, table: StepTable) -> BoolArray | None:
        tell = getattr(self.part, "meets_others", None)
        return None if tell is None else tell(table, self)


def list_rollouts(table: StepTable, value_A: Sequence[float], step: int) -> tuple[tuple[int, float], ...]:
    """The rollouts of a step's task: the first step of each, and its number."""
    first = table.rollouts.first.tolist()
    pairs = zip(first, map(float, value_A), strict=True)
    return tuple((place, value) for place, value in pairs if table.task[place] == table.task[step])
