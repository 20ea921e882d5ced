"""From log-probs and advantages to the loss: ratio, surrogate, corrections, penalties, aggregate."""

from __future__ import annotations

from groupwise.losses.aggregates import ConstantLength, SequenceMean, SequenceSum, StepMean, TokenMean, TrajectoryMean
from groupwise.losses.corrections import Mask, OffPolicyMask, Reject, Truncate
from groupwise.losses.pairs import (
    AllPairs,
    BestAgainstWorst,
    PairLoss,
    PairSums,
    PairTerms,
    PerPair,
    share_of_pairs,
    softplus,
)
from groupwise.losses.penalties import EntropyBonus, EntropyShare, Kl, SquaredChange, SquaredDrift, k3
from groupwise.losses.policy_loss import METRICS, LossResult, PolicyLoss, Tally, tally_tokens
from groupwise.losses.ratios import SequenceRatio, TokenRatio
from groupwise.losses.slots import MeasuringPenalty, PenaltyPart, TokenLoss, read_declared
from groupwise.losses.surrogates import Clip, ClippedChannels, Plain
from groupwise.losses.token_columns import (
    ENTROPY,
    OLD_LOGP,
    PAIRS,
    REFERENCE_LOGP,
    SPANS,
    UNITS,
    Tensor,
    TokenColumns,
    TrajectorySums,
    Unit,
    share_of_step,
)
from groupwise.parts.part import Part

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "loss": {"policy_loss": PolicyLoss},
    "pairing": {"best_against_worst": BestAgainstWorst, "all_pairs": AllPairs},
    "ratio": {"token_ratio": TokenRatio, "sequence_ratio": SequenceRatio},
    "surrogate": {"plain": Plain, "clip": Clip, "clipped_channels": ClippedChannels},
    "correction": {"truncate": Truncate, "mask": Mask, "reject": Reject, "off_policy_mask": OffPolicyMask},
    "penalty": {
        "kl": Kl,
        "entropy_bonus": EntropyBonus,
        "entropy_share": EntropyShare,
        "squared_change": SquaredChange,
        "squared_drift": SquaredDrift,
    },
    "aggregate": {
        "token_mean": TokenMean,
        "sequence_mean": SequenceMean,
        "sequence_sum": SequenceSum,
        "constant_length": ConstantLength,
        "step_mean": StepMean,
        "trajectory_mean": TrajectoryMean,
    },
}
"""Slot -> kind -> class."""
