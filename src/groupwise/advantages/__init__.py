"""From groups of numbers to credit: signals, baselines, scales, and the estimators made of them."""

from __future__ import annotations

from groupwise.advantages.above_prior import AbovePrior
from groupwise.advantages.baselines import (
    DistinctMean,
    LeaveOneOut,
    LogMeanExp,
    Mean,
    Median,
    NoBaseline,
    ShiftedMean,
)
from groupwise.advantages.bounded import Bounded
from groupwise.advantages.combine import Blend, Sum, Term
from groupwise.advantages.difficulty import Asymmetric, QuestionWeighted
from groupwise.advantages.exponential import ExponentiallyWeighted
from groupwise.advantages.merged import Merged
from groupwise.advantages.outcome_spread import OutcomeSpread
from groupwise.advantages.pass_at_bonus import PassAtBonus
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
from groupwise.advantages.tool_economy import ToolEconomy
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
    "tool_economy": ToolEconomy,
}

BASELINES: dict[str, type[Part]] = {
    "mean": Mean,
    "leave_one_out": LeaveOneOut,
    "median": Median,
    "distinct_mean": DistinctMean,
    "shifted_mean": ShiftedMean,
    "log_mean_exp": LogMeanExp,
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
    "exponentially_weighted": ExponentiallyWeighted,
    "outcome_spread": OutcomeSpread,
    "pass_at_bonus": PassAtBonus,
}

__all__ = [
    "BASELINES",
    "ESTIMATORS",
    "SCALES",
    "SIGNALS",
    "AbovePrior",
    "Asymmetric",
    "Blend",
    "Bounded",
    "Centred",
    "ColumnSignal",
    "Deviation",
    "DistinctDeviation",
    "DistinctMean",
    "EpisodeReturn",
    "ExponentiallyWeighted",
    "LeaveOneOut",
    "LogMeanExp",
    "Mean",
    "MeanAbsoluteDeviation",
    "Median",
    "MedianAbsoluteDeviation",
    "Merged",
    "NoBaseline",
    "NoScale",
    "OutcomeSpread",
    "PassAtBonus",
    "Penalised",
    "PenalisedRefusals",
    "QuestionWeighted",
    "Relative",
    "ReturnToGo",
    "ShiftedMean",
    "StepRewardSignal",
    "Sum",
    "Term",
    "ToolEconomy",
    "Whitened",
]
