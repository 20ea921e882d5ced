"""From log-probs and credit to the number that is minimised: ratio, surrogate, corrections, penalties, aggregate."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.losses.aggregates import (
    ConstantLength,
    SequenceMean,
    SequenceSum,
    StepMean,
    TokenMean,
    TrajectoryMean,
)
from groupwise.losses.by_verdict import ByVerdict
from groupwise.losses.corrections import Mask, OffPolicyMask, Reject, Truncate
from groupwise.losses.disco import Disco
from groupwise.losses.dpo import Dpo, Rpo, StepApo
from groupwise.losses.elastic_clip import ElasticClip
from groupwise.losses.entropy_corridor import EntropyCorridor
from groupwise.losses.gated_kl import GatedKl
from groupwise.losses.last_turn_first import LastTurnFirst
from groupwise.losses.llds import Llds
from groupwise.losses.p3o import P3o
from groupwise.losses.pair_sums import PairSums, PairTerms, share_of_pairs
from groupwise.losses.pairings import AllPairs, BestAgainstWorst
from groupwise.losses.penalties import EntropyBonus, EntropyShare, Kl, SquaredChange, SquaredDrift
from groupwise.losses.policy_loss import METRICS, LossResult, PolicyLoss, Tally
from groupwise.losses.ratio_variance import RatioVariance
from groupwise.losses.ratios import SequenceRatio, TokenRatio
from groupwise.losses.rec import Rec, Reinforce
from groupwise.losses.regression import Regression
from groupwise.losses.siblings import Siblings
from groupwise.losses.simpo import Simpo
from groupwise.losses.slots import TokenLoss
from groupwise.losses.surrogates import Cispo, Clip, ClippedChannels, Plain, Sapo
from groupwise.losses.token_columns import ENTROPY, OLD_LOGP, PAIRS, REFERENCE_LOGP, SPANS, TokenColumns
from groupwise.losses.trajectory_sums import TrajectorySums, share_of_step

LOSSES: dict[str, type[Part]] = {
    "policy_loss": PolicyLoss,
    "simpo": Simpo,
    "dpo": Dpo,
    "rpo": Rpo,
    "step_apo": StepApo,
    "p3o": P3o,
    "disco": Disco,
    "regression": Regression,
    "llds": Llds,
    "last_turn_first": LastTurnFirst,
}

PAIRINGS: dict[str, type[Part]] = {
    "best_against_worst": BestAgainstWorst,
    "all_pairs": AllPairs,
    "siblings": Siblings,
    "by_verdict": ByVerdict,
}

RATIOS: dict[str, type[Part]] = {
    "token_ratio": TokenRatio,
    "sequence_ratio": SequenceRatio,
}

SURROGATES: dict[str, type[Part]] = {
    "plain": Plain,
    "clip": Clip,
    "cispo": Cispo,
    "sapo": Sapo,
    "elastic_clip": ElasticClip,
    "clipped_channels": ClippedChannels,
    "reinforce": Reinforce,
    "rec": Rec,
}

CORRECTIONS: dict[str, type[Part]] = {
    "truncate": Truncate,
    "mask": Mask,
    "reject": Reject,
    "off_policy_mask": OffPolicyMask,
}

PENALTIES: dict[str, type[Part]] = {
    "kl": Kl,
    "gated_kl": GatedKl,
    "entropy_bonus": EntropyBonus,
    "entropy_share": EntropyShare,
    "entropy_corridor": EntropyCorridor,
    "squared_change": SquaredChange,
    "squared_drift": SquaredDrift,
    "ratio_variance": RatioVariance,
}

AGGREGATES: dict[str, type[Part]] = {
    "token_mean": TokenMean,
    "sequence_mean": SequenceMean,
    "sequence_sum": SequenceSum,
    "constant_length": ConstantLength,
    "step_mean": StepMean,
    "trajectory_mean": TrajectoryMean,
}

__all__ = [
    "AGGREGATES",
    "CORRECTIONS",
    "ENTROPY",
    "LOSSES",
    "METRICS",
    "OLD_LOGP",
    "PAIRINGS",
    "PAIRS",
    "PENALTIES",
    "RATIOS",
    "REFERENCE_LOGP",
    "SPANS",
    "SURROGATES",
    "AllPairs",
    "BestAgainstWorst",
    "ByVerdict",
    "Cispo",
    "Clip",
    "ClippedChannels",
    "ConstantLength",
    "Disco",
    "Dpo",
    "ElasticClip",
    "EntropyBonus",
    "EntropyCorridor",
    "EntropyShare",
    "GatedKl",
    "Kl",
    "LastTurnFirst",
    "Llds",
    "LossResult",
    "Mask",
    "OffPolicyMask",
    "P3o",
    "PairSums",
    "PairTerms",
    "Plain",
    "PolicyLoss",
    "RatioVariance",
    "Rec",
    "Regression",
    "Reinforce",
    "Reject",
    "Rpo",
    "Sapo",
    "SequenceMean",
    "SequenceRatio",
    "SequenceSum",
    "Siblings",
    "Simpo",
    "SquaredChange",
    "SquaredDrift",
    "StepApo",
    "StepMean",
    "Tally",
    "TokenColumns",
    "TokenLoss",
    "TokenMean",
    "TokenRatio",
    "TrajectoryMean",
    "TrajectorySums",
    "Truncate",
    "share_of_pairs",
    "share_of_step",
]
