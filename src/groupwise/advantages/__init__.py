"""From groups of numbers to credit: signals, baselines, scales, and the estimators made of them."""

from __future__ import annotations

from groupwise.advantages.above_prior import AbovePrior
from groupwise.advantages.anchored import Anchored
from groupwise.advantages.answer_blend import AnswerBlend
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
from groupwise.advantages.consistency import GlobalShare, LocalShare
from groupwise.advantages.difficulty import Asymmetric, QuestionWeighted
from groupwise.advantages.distinct_credit import DistinctCredit
from groupwise.advantages.doubt_gate import DoubtGate
from groupwise.advantages.exponential import ExponentiallyWeighted
from groupwise.advantages.fixed_scale import FixedUnlessSolved
from groupwise.advantages.merged import Merged
from groupwise.advantages.outcome_spread import OutcomeSpread
from groupwise.advantages.pass_at_bonus import PassAtBonus
from groupwise.advantages.penalised import Penalised, PenalisedRefusals
from groupwise.advantages.relative import Relative
from groupwise.advantages.scaled import RootMeanSquare, Scaled
from groupwise.advantages.scales import (
    Deviation,
    DistinctDeviation,
    FlooredDeviation,
    MeanAbsoluteDeviation,
    MedianAbsoluteDeviation,
    NoScale,
)
from groupwise.advantages.set_shared import SetShared
from groupwise.advantages.shrunk import Shrunk
from groupwise.advantages.signals import Centred, ColumnMean, ColumnSignal, EpisodeReturn, ReturnToGo, StepRewardSignal
from groupwise.advantages.temporal_differences import TemporalDifferences
from groupwise.advantages.tool_economy import ToolEconomy
from groupwise.advantages.whitened import Whitened
from groupwise.core.parts.part import Part

SIGNALS: dict[str, type[Part]] = {
    "episode_return": EpisodeReturn,
    "return_to_go": ReturnToGo,
    "step_reward": StepRewardSignal,
    "column": ColumnSignal,
    "column_mean": ColumnMean,
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
    "fixed_unless_solved": FixedUnlessSolved,
    "floored_deviation": FlooredDeviation,
    "median_absolute_deviation": MedianAbsoluteDeviation,
    "mean_absolute_deviation": MeanAbsoluteDeviation,
    "distinct_deviation": DistinctDeviation,
    "root_mean_square": RootMeanSquare,
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
    "anchored": Anchored,
    "local_share": LocalShare,
    "global_share": GlobalShare,
    "doubt_gate": DoubtGate,
    "distinct_credit": DistinctCredit,
    "pass_at_bonus": PassAtBonus,
    "set_shared": SetShared,
    "temporal_differences": TemporalDifferences,
    "scaled": Scaled,
    "shrunk": Shrunk,
}

__all__ = [
    "BASELINES",
    "ESTIMATORS",
    "SCALES",
    "SIGNALS",
    "AbovePrior",
    "Anchored",
    "AnswerBlend",
    "Asymmetric",
    "Blend",
    "Bounded",
    "Centred",
    "ColumnMean",
    "ColumnSignal",
    "Deviation",
    "DistinctCredit",
    "DistinctDeviation",
    "DistinctMean",
    "DoubtGate",
    "EpisodeReturn",
    "ExponentiallyWeighted",
    "FixedUnlessSolved",
    "FlooredDeviation",
    "GlobalShare",
    "LeaveOneOut",
    "LocalShare",
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
    "RootMeanSquare",
    "Scaled",
    "SetShared",
    "ShiftedMean",
    "Shrunk",
    "StepRewardSignal",
    "Sum",
    "TemporalDifferences",
    "Term",
    "ToolEconomy",
    "Whitened",
]
