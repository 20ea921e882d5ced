"""Pieces that several methods use: groups, what is compared in them, and the advantages that follow."""

from __future__ import annotations

from groupwise.credit.answer_segments import (
    ENDS,
    VALUES,
    AnswerSegments,
    join_numbers,
    read_comparison,
    read_segments,
    read_token_numbers,
)
from groupwise.credit.baselines import (
    DistinctMean,
    LeaveOneOut,
    LogMeanExp,
    Mean,
    Median,
    NoBaseline,
    ShiftedMean,
    centre_values,
)
from groupwise.credit.estimators import (
    Blend,
    Relative,
    RootMeanSquare,
    Scaled,
    StepTrace,
    Sum,
    TemporalDifferences,
    Term,
    Whitened,
    list_rollouts,
    weigh_credit,
)
from groupwise.credit.filters import (
    AmongSolved,
    AtMost,
    DropFailed,
    DropSolved,
    OverlongMask,
    SmallCredit,
    Staleness,
    WithoutTruncated,
    ZeroSpread,
)
from groupwise.credit.function_reward import FunctionReward
from groupwise.credit.gae import (
    CRITIC_VALUE,
    CRITIC_VALUES,
    compute_gae,
    derive_sum,
    find_surprises,
    find_value_targets,
    list_rewards,
    place_rewards,
    read_step_values,
    read_token_values,
)
from groupwise.credit.groupers import ByBranch, ByHistory, ByRollout, ByState, ByTask, Peers
from groupwise.credit.rewards import (
    BrevityReward,
    EnvironmentReward,
    FormatReward,
    GradedReward,
    LadderReward,
    LengthReward,
    MalformedResponseReward,
    OutcomeReward,
    OverlongReward,
    RefusedActionReward,
    Reward,
    RewardSlot,
    StepReward,
    pay_last,
)
from groupwise.credit.scales import (
    Deviation,
    DistinctDeviation,
    FixedUnlessSolved,
    FlooredDeviation,
    MeanAbsoluteDeviation,
    MedianAbsoluteDeviation,
    NoScale,
)
from groupwise.credit.scoring import ReferenceKl, check_recorded, score_trajectory, shape_group
from groupwise.credit.signals import (
    AbovePrior,
    Centred,
    ColumnMean,
    ColumnSignal,
    EpisodeReturn,
    NumberState,
    Penalised,
    PenalisedRefusals,
    ReturnToGo,
    StepRewardSignal,
    check_range,
    read_remembered,
)
from groupwise.credit.token_credit import (
    DiscountedTokens,
    FirstTokens,
    TokenGae,
    TokenReturn,
    WhitenedTokens,
    train_all,
)
from groupwise.parts.part import Part

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "grouper": {
        "by_task": ByTask,
        "by_rollout": ByRollout,
        "by_state": ByState,
        "by_history": ByHistory,
        "by_branch": ByBranch,
        "among_solved": AmongSolved,
    },
    "filter": {
        "drop_failed": DropFailed,
        "drop_solved": DropSolved,
        "overlong_mask": OverlongMask,
        "small_credit": SmallCredit,
        "staleness": Staleness,
        "zero_spread": ZeroSpread,
    },
    "rollout_filter": {"at_most": AtMost, "without_truncated": WithoutTruncated},
    "signal": {
        "episode_return": EpisodeReturn,
        "return_to_go": ReturnToGo,
        "step_reward": StepRewardSignal,
        "column": ColumnSignal,
        "column_mean": ColumnMean,
        "penalised": Penalised,
        "penalised_refusals": PenalisedRefusals,
        "centred": Centred,
        "above_prior": AbovePrior,
    },
    "baseline": {
        "mean": Mean,
        "leave_one_out": LeaveOneOut,
        "median": Median,
        "distinct_mean": DistinctMean,
        "shifted_mean": ShiftedMean,
        "log_mean_exp": LogMeanExp,
        "no_baseline": NoBaseline,
    },
    "scale": {
        "deviation": Deviation,
        "fixed_unless_solved": FixedUnlessSolved,
        "floored_deviation": FlooredDeviation,
        "median_absolute_deviation": MedianAbsoluteDeviation,
        "mean_absolute_deviation": MeanAbsoluteDeviation,
        "distinct_deviation": DistinctDeviation,
        "root_mean_square": RootMeanSquare,
        "no_scale": NoScale,
    },
    "estimator": {
        "relative": Relative,
        "sum": Sum,
        "blend": Blend,
        "whitened": Whitened,
        "temporal_differences": TemporalDifferences,
        "scaled": Scaled,
    },
    "token_credit": {
        "discounted_tokens": DiscountedTokens,
        "first_tokens": FirstTokens,
        "token_return": TokenReturn,
        "token_gae": TokenGae,
        "whitened_tokens": WhitenedTokens,
    },
    "reward": {
        "environment": EnvironmentReward,
        "function": FunctionReward,
        "outcome": OutcomeReward,
        "graded": GradedReward,
        "step": StepReward,
        "malformed_response": MalformedResponseReward,
        "refused_action": RefusedActionReward,
        "format": FormatReward,
        "overlong": OverlongReward,
        "length": LengthReward,
        "brevity": BrevityReward,
        "ladder": LadderReward,
    },
    "shaper": {"reference_kl": ReferenceKl},
}
"""Slot -> kind -> class."""
