"""Explains the advantage of one step: its groups, their members, and the arithmetic, derived a second time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import median_low
from typing import Any

import numpy as np

from groupwise.credit import (
    AbovePrior,
    Blend,
    ColumnSignal,
    Deviation,
    DistinctDeviation,
    DistinctMean,
    EpisodeReturn,
    FixedUnlessSolved,
    LeaveOneOut,
    LogMeanExp,
    Mean,
    MeanAbsoluteDeviation,
    Median,
    MedianAbsoluteDeviation,
    NoBaseline,
    NoScale,
    Penalised,
    PenalisedRefusals,
    Relative,
    ReturnToGo,
    RootMeanSquare,
    Scaled,
    ShiftedMean,
    StepRewardSignal,
    Sum,
    Whitened,
)
from groupwise.data.credit import (
    Comparison,
    Credit,
    Derivation,
    OwnTrace,
    Shared,
    Trace,
    WeightedSum,
    find_own_rollout_only,
)
from groupwise.data.segments import IntArray
from groupwise.data.step_table import StepTable
from groupwise.methods.ngrpo import Bounded
from groupwise.methods.rec import ExponentiallyWeighted
from groupwise.methods.salt import Merged
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Part, name_of
from groupwise.system.errors import RecordError, nearest
from groupwise.system.text import describe_value


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """A member of a group: a step, a whole rollout with the mean of its steps, or a value that the method adds."""

    task: str | int
    rollout: str | int | None
    """Id of its rollout; None = the method added it."""
    step: int | None
    """The number of the step; None = it is not one step."""
    value: float
    is_self: bool
    """Whether it is the explained step or its rollout."""
    num_steps: int = 1
    """How many steps were averaged; 0 = the method added it."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """How one number of a step was computed."""

    what: str
    """The part that computed the number, in words."""
    value: float
    by_hand: float | None
    """The number, derived again from the members and the inner numbers; None = not derived."""
    compared: bool
    formula: str
    members: tuple[GroupMember, ...] = ()
    inner: tuple[tuple[float, Explanation], ...] = ()
    """The numbers that it was computed from, each with its weight."""
    not_derived: str = ""
    """What was taken as computed, because it cannot be derived again here; empty = nothing."""
    own_rollout_only: bool | None = None
    """Whether the step is compared only with steps of its own rollout; None = not compared, or unknown."""

    @property
    def best_known(self) -> float:
        """The derived number, else the computed one."""
        return self.value if self.by_hand is None else self.by_hand

    def largest_gap(self) -> float | None:
        """Largest relative distance between a computed and a derived number, here or in `inner`; None = none."""
        below = [inner.largest_gap() for _, inner in self.inner]
        here = None if self.by_hand is None else abs(self.value - self.by_hand) / max(1.0, abs(self.value))
        return max((gap for gap in (here, *below) if gap is not None), default=None)

    def list_not_derived(self) -> tuple[str, ...]:
        """Everything, here or in `inner`, that was not derived again."""
        reasons = [self.not_derived] if self.not_derived else []
        reasons += [reason for _, inner in self.inner for reason in inner.list_not_derived()]
        return tuple(dict.fromkeys(reasons))


def explain_step(table: StepTable, credit: Credit, *, task: str | int, rollout: str | int, step: int) -> Explanation:
    return _explain_trace(table, credit.trace, find_step(table, task=task, rollout=rollout, step=step))


def explain_channels(table: StepTable, algorithm: Algorithm, step: int) -> dict[str, Explanation]:
    return {name: _explain_trace(table, credit.trace, step) for name, credit in algorithm.channel_credit(table).items()}


def find_step(table: StepTable, *, task: str | int, rollout: str | int, step: int) -> int:
    """Position of a step in the table; ids may be given as text."""
    task_code = _find_code("task", task, table.task_ids)
    of_task = np.flatnonzero(table.task == task_code)
    rollouts = sorted(set(table.rollout[of_task].tolist()))
    rollout_code = rollouts[_find_code("rollout", rollout, [table.rollout_ids[code] for code in rollouts])]
    positions = np.flatnonzero((table.rollout == rollout_code) & (table.step == step))
    if not len(positions):
        steps = table.step[table.rollout == rollout_code]
        raise RecordError(
            f"task {task!r}, rollout {rollout!r} has no step {step}; its steps are {steps.min()} to {steps.max()}"
        )
    return int(positions[0])


def _find_code(kind: str, wanted: str | int, ids: Sequence[str | int]) -> int:
    names = [str(name) for name in ids]
    if str(wanted) not in names:
        raise RecordError(f"there is no {kind} {wanted!r}; {nearest(str(wanted), names)}")
    return names.index(str(wanted))


def _explain_trace(table: StepTable, trace: Trace, step: int) -> Explanation:
    own, part, value = find_own_rollout_only(table, trace), getattr(trace, "part", None), float(trace.values[step])
    computed = Explanation(
        what=type(trace).__name__ if part is None else _describe_part(part),
        value=value,
        by_hand=None,
        compared=bool(trace.compared[step]),
        formula=f"{value:.6g}",
        own_rollout_only=None if own is None else bool(own[step]),
    )
    if isinstance(trace, Comparison):
        return _explain_comparison(table, trace, step, computed)
    if isinstance(trace, WeightedSum):
        return _explain_weighted_sum(table, trace, step, computed)
    if isinstance(trace, Shared):
        return _explain_shared(table, trace, step, computed)
    return _explain_own_trace(table, trace, step, computed)


def _explain_comparison(table: StepTable, trace: Comparison, step: int, computed: Explanation) -> Explanation:
    part, label = trace.part, trace.label[step]
    inner = ((1.0, _explain_signal(table, trace, step)),)
    if not trace.compared[step]:
        known, lone = isinstance(part, Relative | Scaled | Whitened), 0.0
        if isinstance(part, Relative) and part.alone == "raw" and label >= 0:
            lone = inner[0][1].best_known
        return replace(
            computed,
            by_hand=lone if known else None,
            formula="in no group: 0" if label < 0 else f"the only member of its group: {computed.value:.6g}",
            inner=inner,
            not_derived="" if known else f"the number that {computed.what} gives a step without a comparison",
        )
    steps = np.flatnonzero(trace.label == label)
    level, spread, not_derived = _derive_statistics(table, part, trace, steps, step)
    distance = float(Fraction(float(trace.signal[step])) - level)
    credit = 0.0 if not spread or _is_all_equal(table, part, trace, steps) else distance / spread
    virtual, task = part.virtual if isinstance(part, Relative) else (), table.task_ids[table.task[step]]
    return replace(
        computed,
        by_hand=credit,
        formula=f"({trace.signal[step]:.9g} - {float(level):.9g}) / {spread:.9g} = {credit:.6g}",
        members=(
            *_list_members(table, trace.signal, steps, step, by_rollout=_counts_rollouts(part)),
            *(
                GroupMember(task=task, rollout=None, step=None, value=value, is_self=False, num_steps=0)
                for value in virtual
            ),
        ),
        inner=inner,
        not_derived=not_derived,
    )


def _counts_rollouts(part: object) -> bool:
    """Whether each rollout counts once in the statistics, with the mean of its steps."""
    return isinstance(part, Relative) and part.average == "rollout"


def _explain_signal(table: StepTable, trace: Comparison, step: int) -> Explanation:
    """The compared value: another advantage, or a signal that is derived again from the rewards."""
    if trace.of is not None:
        return _explain_trace(table, trace.of, step)
    traced = float(trace.signal[step])
    signal = trace.part.of if isinstance(trace.part, Relative) else trace.part
    known = _derive_signal(table, signal, step)
    return Explanation(
        what=name_of(signal),
        value=traced,
        by_hand=None if known is None else float(known),
        compared=True,
        formula=f"{traced if known is None else float(known):.9g}",
        not_derived=f"the value of {name_of(signal)}" if known is None else "",
    )


def _derive_statistics(
    table: StepTable, part: object, trace: Comparison, steps: IntArray, step: int
) -> tuple[Fraction, float, str]:
    """Baseline and scale of the step's group, derived again; and which of them are only traced, not derived."""
    traced = Fraction(float(trace.baseline[step])), float(trace.scale[step])
    if isinstance(part, Whitened):
        return *_derive_whitening(table, part, trace, steps), ""
    if isinstance(part, Scaled) and (spread := derive_scale(part.scale, trace.signal[steps].tolist())) is not None:
        return Fraction(0), spread, ""
    if not isinstance(part, Relative):
        return *traced, f"baseline and scale of {_describe_part(part)}"
    values, own = _list_counted(table, part, trace, steps, step)
    is_mixed = part.mixed_scale is not None and table.off_policy[steps].any()
    scale = part.mixed_scale if is_mixed else part.scale  # of a group with off-policy members
    level, spread = derive_baseline(part.baseline, values, own), derive_scale(scale, values)
    unknown = [name_of(which) for which, number in ((part.baseline, level), (scale, spread)) if number is None]
    words = f"the value of {' and '.join(unknown)}" if unknown else ""
    return traced[0] if level is None else level, traced[1] if spread is None else spread, words


def _list_counted(
    table: StepTable, part: Relative, trace: Comparison, steps: IntArray, step: int
) -> tuple[list[float | Fraction], int]:
    """The values of the statistics, and the index of the step's own value."""
    values: list[float | Fraction]
    if _counts_rollouts(part):
        rollouts = _group_by_rollout(table, steps)
        values = [mean(trace.signal[own].tolist()) for own in rollouts.values()]
        return values + list(part.virtual), list(rollouts).index(int(table.rollout[step]))
    values = list(trace.signal[steps].tolist())
    return values + list(part.virtual), int(np.flatnonzero(steps == step)[0])


def _group_by_rollout(table: StepTable, steps: IntArray) -> dict[int, IntArray]:
    return {rollout: steps[table.rollout[steps] == rollout] for rollout in sorted(set(table.rollout[steps].tolist()))}


def _is_all_equal(table: StepTable, part: object, trace: Comparison, steps: IntArray) -> bool:
    if isinstance(part, Whitened):
        return len(set(trace.signal[steps[table.trained_tokens[steps] > 0]].tolist())) == 1
    if not isinstance(part, Relative) or isinstance(part.baseline, NoBaseline | ShiftedMean):
        return False
    values, _ = _list_counted(table, part, trace, steps, int(steps[0]))
    if isinstance(part.baseline, DistinctMean):
        return len(find_distinct(values, part.baseline.decimals)) == 1
    return len(set(values)) == 1


def _derive_whitening(table: StepTable, part: Whitened, trace: Comparison, steps: IntArray) -> tuple[Fraction, float]:
    tokens, values = table.trained_tokens[steps].tolist(), trace.signal[steps].tolist()
    level = mean_by_weight(values, tokens)
    total = sum(map(Fraction, tokens), Fraction(0))
    variance = mean_by_weight([(Fraction(value) - level) ** 2 for value in values], tokens) * total / (total - 1)
    return level, math.sqrt(variance + Fraction(part.eps))


def _explain_weighted_sum(table: StepTable, trace: WeightedSum, step: int, computed: Explanation) -> Explanation:
    terms = [_explain_trace(table, term, step) for term in trace.terms]
    derived = derive_weights(trace.part, terms)
    weights = [float(weight[step]) for weight in trace.weights] if derived is None else derived
    total = math.fsum(weight * term.best_known for weight, term in zip(weights, terms, strict=True))
    shown = " + ".join(f"{weight:.6g} x {term.best_known:.6g}" for weight, term in zip(weights, terms, strict=True))
    return replace(
        computed,
        by_hand=total,
        formula=f"{shown} = {total:.6g}",
        inner=tuple(zip(weights, terms, strict=True)),
        not_derived=f"the weights of {computed.what}" if derived is None else "",
    )


def _explain_shared(table: StepTable, trace: Shared, step: int, computed: Explanation) -> Explanation:
    own = _explain_trace(table, trace.of, step)
    if trace.label[step] < 0:
        members: tuple[GroupMember, ...] = ()
        value: float | None = own.by_hand
        formula = "shared with no other rollout: its own advantage"
    else:
        steps = np.flatnonzero(trace.label == trace.label[step])
        once = isinstance(trace.part, Merged) and trace.part.count == "rollout"
        members = _list_members(table, trace.of.values, steps, step, by_rollout=once)
        counted: list[float | Fraction] = (
            [mean(trace.of.values[own].tolist()) for own in _group_by_rollout(table, steps).values()]
            if once
            else trace.of.values[steps].tolist()
        )
        value = float(mean(counted))
        formula = f"mean of {len(counted)} {'rollouts' if once else 'steps'} = {value:.6g}"
    return replace(
        computed, by_hand=value, compared=own.compared, formula=formula, members=members, inner=((1.0, own),)
    )


def _explain_own_trace(table: StepTable, trace: OwnTrace, step: int, computed: Explanation) -> Explanation:
    """The derivation of an outside trace; if there is none, why."""
    kind = type(trace).__name__
    if not isinstance(trace, OwnTrace):
        missing = " and no ".join(name for name in ("part", "derive") if not hasattr(trace, name))
        of_part = "" if getattr(trace, "part", None) is None else f" of {computed.what}"
        return replace(computed, not_derived=f"the advantage{of_part}, whose trace {kind} has no {missing}")
    derivation = trace.derive(table, step)
    if not isinstance(derivation, Derivation):
        raise RecordError(
            f"the trace {kind} of {computed.what}: derive returned {describe_value(derivation)}; expected a Derivation"
        )
    counted = np.array([member for member, _ in derivation.members], dtype=np.int64)
    values = np.zeros(len(table))
    values[counted] = [value for _, value in derivation.members]
    return replace(
        computed,
        by_hand=float(derivation.value),
        formula=derivation.formula,
        members=_list_members(table, values, counted, step, by_rollout=False),
        inner=tuple((weight, _explain_trace(table, term, step)) for weight, term in derivation.terms),
        not_derived=derivation.not_derived,
    )


def _derive_signal(table: StepTable, signal: object, step: int) -> float | Fraction | None:
    """A signal, derived again; None for an unknown signal."""
    rollout = table.rollout == table.rollout[step]
    if isinstance(signal, StepRewardSignal):
        return float(table.reward[step])
    if isinstance(signal, ColumnSignal):
        return float(table.column(signal.name)[step])
    if isinstance(signal, EpisodeReturn) and "outcome" in table.extra:
        return float(table.column("outcome")[step])
    if isinstance(signal, EpisodeReturn):
        return mean(table.reward[rollout].tolist()) * int(rollout.sum())
    if isinstance(signal, ReturnToGo) and signal.within == "rollout":
        later = np.flatnonzero(rollout & (table.step >= table.step[step])).tolist()
        rewards = [reward for place in later if (reward := _derive_signal(table, signal.of, place)) is not None]
        return discount(rewards, signal.gamma) if len(rewards) == len(later) else None
    if isinstance(signal, Bounded):
        return _derive_signal(table, signal.of, step)
    if isinstance(signal, AbovePrior):
        prior = float(table.column(signal.column)[step])
        inner = _derive_signal(table, signal.of, step)
        return None if inner is None else Fraction(inner) - Fraction(prior)
    if isinstance(signal, Penalised | PenalisedRefusals):
        penalty = signal.penalty if _is_penalised(table, signal, step) else 0.0
        inner = _derive_signal(table, signal.of, step)
        return None if inner is None else Fraction(inner) - Fraction(penalty)
    return None


def _is_penalised(table: StepTable, signal: Penalised | PenalisedRefusals, step: int) -> bool:
    is_well_formed = "well_formed" not in table.extra or bool(table.column("well_formed")[step])
    if isinstance(signal, Penalised):
        return not is_well_formed
    return bool(signal.penalty) and is_well_formed and not table.column("accepted")[step]


def _list_members(
    table: StepTable, values: Any, steps: IntArray, step: int, *, by_rollout: bool
) -> tuple[GroupMember, ...]:
    """The members of the statistics: steps, or rollouts with the mean of their steps."""
    counted = (
        list(_group_by_rollout(table, steps).values()) if by_rollout else [steps[i : i + 1] for i in range(len(steps))]
    )
    return tuple(
        GroupMember(
            task=table.task_ids[table.task[own[0]]],
            rollout=table.rollout_ids[table.rollout[own[0]]],
            step=int(table.step[own[0]]) if len(own) == 1 else None,
            value=float(mean(values[own].tolist())),
            is_self=bool((own == step).any()),
            num_steps=len(own),
        )
        for own in counted
    )


def _describe_part(part: object) -> str:
    if isinstance(part, Relative):
        return f"{name_of(part.of)} compared {name_of(part.by)}, {name_of(part.baseline)} / {name_of(part.scale)}"
    return type(part).__name__ if isinstance(part, Part) else str(part)


# Statistics of one group for the second derivation: plain Python with exact fractions, no code of the estimators.


def mean(values: Sequence[float | Fraction]) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0)) / len(values)


def mean_by_weight(values: Sequence[float | Fraction], weights: Sequence[float]) -> Fraction:
    pairs = zip(values, weights, strict=True)
    return sum((Fraction(v) * Fraction(w) for v, w in pairs), Fraction(0)) / sum(map(Fraction, weights), Fraction(0))


def deviation(values: Sequence[float | Fraction], ddof: int) -> float:
    """Standard deviation; 0 for too few values."""
    if len(values) <= ddof:
        return 0.0
    level = mean(values)
    return _take_root(sum(((Fraction(value) - level) ** 2 for value in values), Fraction(0)) / (len(values) - ddof))


def discount(rewards: Sequence[float | Fraction], gamma: float) -> Fraction:
    """Sum of gamma^k * r_k."""
    return sum((Fraction(gamma) ** k * Fraction(reward) for k, reward in enumerate(rewards)), Fraction(0))


def find_distinct(values: Sequence[float | Fraction], decimals: int) -> list[float]:
    return sorted({round(float(value), decimals) for value in values})


def derive_baseline(part: object, values: Sequence[float | Fraction], own: int) -> Fraction | None:
    """The baseline of the member `own`; None for an unknown baseline."""
    known: dict[type, Callable[[Any], Fraction]] = {
        Mean: lambda _: mean(values),
        LeaveOneOut: lambda _: mean([value for i, value in enumerate(values) if i != own]),
        Median: lambda _: Fraction(median_low(values)),
        DistinctMean: lambda part: mean(find_distinct(values, part.decimals)),
        ShiftedMean: lambda part: mean(values) - Fraction(part.shift),
        LogMeanExp: lambda part: _find_soft_maximum(part.temperature, values),
        NoBaseline: lambda _: Fraction(0),
    }
    return known[type(part)](part) if type(part) in known else None


def derive_scale(part: object, values: Sequence[float | Fraction]) -> float | None:
    """The scale of a group; None for an unknown scale."""
    known: dict[type, Callable[[Any], float]] = {
        Deviation: lambda part: part.factor * deviation(values, part.ddof) + part.eps,
        FixedUnlessSolved: lambda part: (
            part.factor * deviation(values, part.ddof) + part.eps if max(values) > part.above else part.fixed
        ),
        MedianAbsoluteDeviation: lambda part: _find_median_distance(part, values),
        MeanAbsoluteDeviation: lambda part: float(
            (sum((abs(Fraction(v) - mean(values)) for v in values), Fraction(0)) + Fraction(part.eps)) / len(values)
        ),
        DistinctDeviation: lambda part: deviation(find_distinct(values, part.decimals), 1) + part.eps,
        RootMeanSquare: lambda part: _take_root(mean([Fraction(value) ** 2 for value in values])) + part.eps,
        NoScale: lambda _: 1.0,
    }
    return known[type(part)](part) if type(part) in known else None


def derive_weights(part: object, terms: Sequence[Explanation]) -> list[float] | None:
    """The weight of each term; None for an unknown part."""
    if isinstance(part, Sum):
        return [term.weight for term in part.terms]
    if isinstance(part, Blend):
        skips_zeros = part.absent == "zero_valued"
        raw = [
            term.weight if (worked.value != 0 if skips_zeros else worked.compared) else 0.0
            for term, worked in zip(part.terms, terms, strict=True)
        ]
        total = math.fsum(raw) + part.eps
        return [weight / total if total else 0.0 for weight in raw]
    if isinstance(part, ExponentiallyWeighted):
        return [math.exp(max(-20.0, min(20.0, terms[0].best_known / part.temperature)))]
    return None


def _find_soft_maximum(temperature: float, values: Sequence[float | Fraction]) -> Fraction:
    highest = max(Fraction(value) for value in values)
    total = math.fsum(math.exp(float(Fraction(value) - highest) / temperature) for value in values)
    return highest + Fraction(temperature * math.log(total / len(values)))


def _find_median_distance(part: MedianAbsoluteDeviation, values: Sequence[float | Fraction]) -> float:
    level = Fraction(median_low(values))
    distance = median_low([abs(Fraction(value) - level) for value in values])
    if distance < Fraction(part.fallback) * (Fraction(max(values)) - Fraction(min(values))):
        return deviation(values, 1) + 1e-9  # as the part does, against rounding
    return float(distance) + part.eps


def _take_root(value: Fraction) -> float:
    """Square root of a fraction of any size, scaled by a power of four against overflow and underflow."""
    if not value:
        return 0.0
    shift = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(value / Fraction(4) ** shift), shift)
