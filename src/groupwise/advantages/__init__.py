"""From groups of numbers to credit: signals, baselines, scales, and the estimators made of them."""

from __future__ import annotations

from groupwise.advantages.above_prior import AbovePrior
from groupwise.advantages.baselines import DistinctMean, LeaveOneOut, Mean, Median, NoBaseline
from groupwise.advantages.bounded import Bounded
from groupwise.advantages.combine import Blend, Sum, Term
from groupwise.advantages.conflict_tokens import ConflictTokens
from groupwise.advantages.difficulty import Asymmetric, QuestionWeighted
from groupwise.advantages.dual_down_sampling import DualDownSampling
from groupwise.advantages.merged import Merged
from groupwise.advantages.penalised import Penalised, PenalisedRefusals
from groupwise.advantages.relative import Relative
from groupwise.advantages.scales import (
    Deviation,
    DistinctDeviation,
    MeanAbsoluteDeviation,
    MedianAbsoluteDeviation,
    NoScale,
)
from groupwise.advantages.signals import Centred, ColumnSignal, EpisodeReturn, ReturnToGo, StepRewardSignal
from groupwise.advantages.tokens import DiscountedTokens, FirstTokens
from groupwise.advantages.whitened import Whitened
from groupwise.core.parts.part import Part

SIGNALS: dict[str, type[Part]] = {
    "episode_return": EpisodeReturn,
    "return_to_go": ReturnToGo,
    "step_reward": StepRewardSignal,
    "column": ColumnSignal,
    "penalised": Penalised,
    "penalised_refusals": PenalisedRefusals,
    "centred": Centred,
    "bounded": Bounded,
    "above_prior": AbovePrior,
}

BASELINES: dict[str, type[Part]] = {
    "mean": Mean,
    "leave_one_out": LeaveOneOut,
    "median": Median,
    "distinct_mean": DistinctMean,
    "no_baseline": NoBaseline,
}

SCALES: dict[str, type[Part]] = {
    "deviation": Deviation,
    "median_absolute_deviation": MedianAbsoluteDeviation,
    "mean_absolute_deviation": MeanAbsoluteDeviation,
    "distinct_deviation": DistinctDeviation,
    "no_scale": NoScale,
}

ESTIMATORS: dict[str, type[Part]] = {
    "relative": Relative,
    "sum": Sum,
    "blend": Blend,
    "merged": Merged,
    "whitened": Whitened,
    "question_weighted": QuestionWeighted,
    "asymmetric": Asymmetric,
}

TOKEN_CREDITS: dict[str, type[Part]] = {
    "discounted_tokens": DiscountedTokens,
    "first_tokens": FirstTokens,
    "conflict_tokens": ConflictTokens,
    "dual_down_sampling": DualDownSampling,
}

__all__ = [
    "BASELINES",
    "ESTIMATORS",
    "SCALES",
    "SIGNALS",
    "TOKEN_CREDITS",
    "AbovePrior",
    "Asymmetric",
    "Blend",
    "Bounded",
    "Centred",
    "ColumnSignal",
    "ConflictTokens",
    "Deviation",
    "DiscountedTokens",
    "DistinctDeviation",
    "DistinctMean",
    "DualDownSampling",
    "EpisodeReturn",
    "FirstTokens",
    "LeaveOneOut",
    "Mean",
    "MeanAbsoluteDeviation",
    "Median",
    "MedianAbsoluteDeviation",
    "Merged",
    "NoBaseline",
    "NoScale",
    "Penalised",
    "PenalisedRefusals",
    "QuestionWeighted",
    "Relative",
    "ReturnToGo",
    "StepRewardSignal",
    "Sum",
    "Term",
    "Whitened",
]
