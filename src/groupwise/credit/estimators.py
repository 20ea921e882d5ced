"""Estimators: a number less its group's level, over its group's spread (`Relative`), and what is made of such credit.

Axes: S steps, C members of the statistics (steps, or attempts within a group, and virtual members), M groups.
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
from groupwise.data.segments import BoolArray, FloatArray, IntArray, Segments, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Finite, NotNegative, Part, Share, name_of
from groupwise.parts.slots import BaselinePart, EstimatorPart, GrouperPart, ScalePart, SignalPart
from groupwise.system.errors import RecordError


class Relative(Part, slot="estimator"):
    """Compare each step's signal with its group's.

        credit = (signal - baseline(group)) / scale(group)

    Edge behaviour: all members equal gives exactly 0 (unless nothing is subtracted: `NoBaseline` keeps the values); a
    group of one follows `alone`; a step in no group gets 0 and is
    not compared.
    """

    by: GrouperPart
    """Who is compared with whom."""
    of: SignalPart
    """What is compared."""
    baseline: BaselinePart = Mean()
    """What is subtracted."""
    scale: ScalePart = Deviation()
    """What it is divided by."""
    mixed_scale: ScalePart | None = None
    """What groups with off-policy members are divided by; None = the same as others (R^3 tempers them)."""
    average: Literal["attempt", "step"] = "attempt"
    """Who counts in the statistics: each attempt once (with the mean of its steps in the group), or each step."""
    alone: Literal["zero", "raw", "error"] = "zero"
    """What a group of one receives: 0, its raw signal (as several released codes do), or an error."""
    virtual: tuple[float, ...] = ()
    """Values of made-up members that join every group's statistics and receive nothing (NGRPO)."""
    virtual_is_company: bool = True
    """Whether a group with one real member and made-up ones counts as a comparison, or its member as alone."""

    def __call__(self, table: StepTable) -> Credit:
        signal, label = table.ask_once(self.of), table.ask_once(self.by)
        member, values, groups = self._find_members(table, signal, label)
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
        # All members equal: 0 for every step, even where an attempt's own steps differ from its mean.
        flat = np.append(groups.sum((centred != 0).astype(np.float64)) == 0, False)[group]
        divisor = np.where(compared & ~flat & (scale_of_step > 0), scale_of_step, np.inf)
        lone = (group >= 0) & ~compared
        if self.alone == "error" and lone.any():
            raise RecordError(
                f"{table.describe_step(int(np.flatnonzero(lone)[0]))}: nobody to compare with ({name_of(self.by)}); "
                "add attempts, or set alone to 'zero' or 'raw'"
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

    def _find_members(
        self, table: StepTable, signal: FloatArray, label: IntArray
    ) -> tuple[IntArray, FloatArray, Segments]:
        """Who counts in the statistics: the member that each step is (S), the members' values and groups (C)."""
        if self.average == "step":
            member, values, label_of_member = np.arange(len(label)), signal, label
        else:
            # An attempt's steps in no group would share the label -1; each attempt keeps them apart from its others.
            cells = Segments.of(pair_labels(label + 1, table.attempt))
            member, values, label_of_member = cells.label, cells.mean(signal), label[cells.first]
        if not self.virtual:
            return member, values, Segments.of(label_of_member)
        groups = Segments.of(label_of_member)
        joined = np.append(groups.label, np.repeat(np.arange(len(groups)), len(self.virtual)))
        return member, np.append(values, np.tile(self.virtual, len(groups))), Segments.of(joined)


# Credit made of credit: weighted sums, and blends over the levels that have something to say.


def weigh_credit(table: StepTable, inner: Trace, weight: FloatArray, part: Part) -> Credit:
    """Credit times a weight for each step (S)."""
    trace = WeightedSum(
        values=inner.values * weight, compared=inner.compared, weights=(weight,), terms=(inner,), part=part
    )
    return Credit.of(table, trace)


def add_up(table: StepTable, terms: Sequence[Trace], weights: Sequence[FloatArray], part: Part) -> Credit:
    """Sum of credit times its weight for each step (S); compared is what any of the terms compared."""
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
    """Add up weighted terms: credit = sum_i weight_i * credit_i. A term that compared nobody adds what it gave: 0."""

    terms: Annotated[tuple[Term, ...], Field(min_length=1)]
    """What is added."""

    def __call__(self, table: StepTable) -> Credit:
        traces = [term.of(table).trace for term in self.terms]
        return add_up(table, traces, [np.full(len(table), term.weight) for term in self.terms], self)


class Blend(Part, slot="estimator"):
    """Average terms by weight, over those that are there for a step.

        credit = sum_i w_i * credit_i / (sum_i w_i + eps),   i over the terms present

    Source: HGPO, arXiv:2602.22817, aggregation over levels. Choices: a term is present where it compared the step. The
    released code instead calls a term absent where its credit is exactly 0 (`absent="zero_valued"`), so a level on
    which the step was exactly average is left out; it also adds 1e-6 to the denominator.
    """

    terms: Annotated[tuple[Term, ...], Field(min_length=1)]
    """What is averaged; weights are relative."""
    absent: Literal["not_compared", "zero_valued"] = "not_compared"
    """Which terms are left out of a step's average."""
    eps: NonNegativeFloat = 0.0
    """Added to the sum of the weights present."""

    def __call__(self, table: StepTable) -> Credit:
        traces = [term.of(table).trace for term in self.terms]
        shares = []
        for term, part in zip(self.terms, traces, strict=True):
            present = part.compared if self.absent == "not_compared" else part.values != 0
            shares.append(np.where(present, term.weight, 0.0))
        total = np.sum(shares, axis=0) + self.eps
        divisor = np.where(total > 0, total, np.inf)
        return add_up(table, traces, [share / divisor for share in shares], self)


# Credit divided by how far a group's credit spreads, and not centred.


class RootMeanSquare(Part, slot="scale"):
    """How far members lie from 0: the root of their mean square, plus eps.

        scale = sqrt(sum_i x_i^2 / n) + eps

    For numbers that are differences already, and whose mean is not taken off. Credit divided by it is at most sqrt(n).
    """

    eps: NotNegative = 1e-6
    """Added to the root."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.sqrt(groups.sum(values**2) / groups.size) + self.eps


class Scaled(Part, slot="estimator"):
    """Divide credit by the spread of its group's credit, and leave its level alone.

        credit = of / scale(of over the group)

    For credit that is a comparison already, such as temporal differences: its mean over a group need not be 0, and says
    something. Hence the spread about 0: a deviation about the mean would be next to nothing where all did equally well,
    and credit next to infinite. Edge behaviour: a step alone in its group, or in none, becomes 0 and counts as not
    compared.
    """

    of: EstimatorPart
    """The credit that is divided."""
    by: GrouperPart
    """Whose credit the spread is taken over."""
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
    """Shift and scale credit to mean 0 and variance 1 over all tokens of the table that train, across tasks.

        A = (v - mean_tok) / sqrt(var_tok + eps),   var_tok with Bessel's correction

    Every token of a step carries the step's value, so each step counts `tokens` times; without that column, once. Steps
    that do not train, by the column `trains` or by the algorithm's filters, are shifted and scaled like the others but
    do not count.

    Source: REINFORCE++, arXiv:2501.03262, as verl computes it. This part mixes tasks by design. Edge behaviour: all
    values that train equal gives exactly 0 to every step; fewer than two tokens that train give 0 and no comparison.

    **Choices.** Tokens that a `token_credit` part keeps from training count: that part is asked after credit is known,
    and decides by it, so that no credit can depend on what it leaves out.
    """

    mixes_tasks: ClassVar[bool] = True
    of: EstimatorPart
    """The credit that is whitened."""
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
    """Credit a step with what it changed in the value of the situation, and with a fading share of later changes.

        V_t     = R_t - D_t,   D = the credit of `of`, a return less what its situation is worth
        delta_t = r_t + gamma * V_(t+1) - V_t,   V = 0 after the end,   r_t = R_t - gamma * R_(t+1)
        A_t     = delta_t + gamma * lam * A_(t+1)

    It is computed as A_t = D_t - gamma * (1 - lam) * (D_(t+1) + gamma * lam * D_(t+2) + ...), which is the same and
    loses no digits to a common level of returns: a step is spared what surprised after it.

    Source: GAE (Schulman et al. 2015, arXiv:1506.02438), with values of groups in place of a critic's, as in GAGPO
    (arXiv:2605.13217). **Choices.** A step that `of` compares with nobody is worth its own return. An attempt that a
    limit cut off ends in nothing, or in the value of its last state once more (`truncated="value"`, which reads the
    column `stop`). lam = 1 is `of` itself. A step is compared where a group says something of any of the values in it.
    """

    of: EstimatorPart
    """Returns less what their situations are worth, in units of the return: `relative` with `no_scale`, or a blend."""
    returns: SignalPart
    """The discounted return that `of` compares."""
    gamma: Share
    """Discount from one step to the next, that of `returns`."""
    lam: Share
    """Share of the next step's credit that a step has too: 0 = one difference, 1 = everything that followed."""
    truncated: Literal["zero", "value"] = "zero"
    """What follows an attempt that a limit cut off: nothing, or the value of the state it was last in."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        values = inner.values - self.gamma * (1 - self.lam) * self._sum_later(table, inner.values)
        if self.truncated == "value":
            expected = self._expect_after(table, inner)
            values = values + self.gamma * discount(expected, table.attempt, self.gamma * self.lam)
        reached = self._find_reached(table, inner.compared)
        return Credit.of(table, StepTrace(values=values, compared=reached, of=inner, part=self))

    def _expect_after(self, table: StepTable, inner: Trace) -> FloatArray:
        """What is expected after each step that a limit cut off (S), else 0."""
        if self.truncated == "zero":
            return np.zeros(len(table))
        is_cut = table.column("stop") == StopReason.TRUNCATED
        return np.where(is_cut, table.ask_once(self.returns) - inner.values, 0.0)

    def _find_reached(self, table: StepTable, marked: BoolArray) -> BoolArray:
        """Which steps have credit that a value of one of the marked steps is in (S)."""
        seen = marked.astype(np.float64)
        reached = marked | (self.gamma * (1 - self.lam) * self._sum_later(table, seen) > 0)
        if self.truncated == "value":
            seen_end = np.where(table.column("stop") == StopReason.TRUNCATED, seen, 0.0)
            reached |= self.gamma * discount(seen_end, table.attempt, self.gamma * self.lam) > 0
        return reached

    def _sum_later(self, table: StepTable, surprises: FloatArray) -> FloatArray:
        """What the steps after each one hold, each later one times gamma * lam (S); 0 for an attempt's last step."""
        sums = discount(surprises, table.attempt, self.gamma * self.lam)
        is_followed = table.attempt[1:] == table.attempt[:-1]
        return np.append(np.where(is_followed, sums[1:], 0.0), np.zeros(len(sums[:1])))

    def meets_others(self, table: StepTable, trace: StepTrace) -> BoolArray | None:
        """Which steps have a value in their credit that another rollout took part in (S)."""
        inner = None if trace.of is None else meets_others(table, trace.of)
        return None if inner is None else self._find_reached(table, inner)

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        assert trace.of is not None, "it is made of other credit"
        path = [place for place in range(step, len(table)) if table.attempt[place] == table.attempt[step]]
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


# Traces of estimators that derive their numbers themselves.


class DerivesSteps(Protocol):
    """An estimator that can work out a number of its own again.

    It may also have `meets_others(table, trace)`: which steps are compared with a step of another rollout (S).
    """

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class StepTrace:
    """What an estimator says of the steps of a table; how, it derives itself (`OwnTrace`)."""

    values: FloatArray
    """Credit of each step (S)."""
    compared: BoolArray
    """Whether the step was compared with anybody (S)."""
    part: DerivesSteps
    """The estimator."""
    of: Trace | None = None
    """Trace of the credit that it was made of."""

    def derive(self, table: StepTable, step: int) -> Derivation:
        return self.part.derive(table, self, step)

    def meets_others(self, table: StepTable) -> BoolArray | None:
        tell = getattr(self.part, "meets_others", None)
        return None if tell is None else tell(table, self)


def list_attempts(table: StepTable, value_A: Sequence[float], step: int) -> tuple[tuple[int, float], ...]:
    """The attempts at a step's task: the first step of each, and its number."""
    first = table.attempts.first.tolist()
    pairs = zip(first, map(float, value_A), strict=True)
    return tuple((place, value) for place, value in pairs if table.task[place] == table.task[step])
