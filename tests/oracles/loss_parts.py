"""Each loss part that is tested, beside the oracle that judges it."""

from __future__ import annotations

from functools import partial

from groupwise.losses import (
    Clip,
    ConstantLength,
    Mask,
    OffPolicyMask,
    Plain,
    Reject,
    SequenceMean,
    SequenceRatio,
    SequenceSum,
    StepMean,
    TokenMean,
    TokenRatio,
    TrajectoryMean,
    Truncate,
)
from groupwise.methods.cispo import Cispo
from groupwise.methods.rec import Rec, Reinforce
from groupwise.methods.sapo import Sapo
from groupwise.parts.part import Part
from tests.oracles import losses as oracle

LENGTH = 7
"""The most tokens a sample may have, in every drawn update."""

RATIOS: dict[str, tuple[Part, oracle.RatioOracle]] = {
    "token": (TokenRatio(), oracle.token_ratio),
    "step": (SequenceRatio(), partial(oracle.sequence_ratio, unit="step", length="mean")),
    "step product": (SequenceRatio(length="sum"), partial(oracle.sequence_ratio, unit="step", length="sum")),
    "span": (SequenceRatio(unit="span"), partial(oracle.sequence_ratio, unit="span", length="mean")),
    "trajectory": (
        SequenceRatio(unit="trajectory", clamp=0.5),
        partial(oracle.sequence_ratio, unit="trajectory", length="mean", bound=0.5),
    ),
}

SURROGATES: dict[str, tuple[Part, oracle.SurrogateOracle]] = {
    "plain": (Plain(), oracle.plain),
    "clip": (Clip(low=0.2, high=0.28), partial(oracle.clip, low=0.2, high=0.28)),
    "dual clip": (Clip(low=0.1, high=0.2, dual=1.5), partial(oracle.clip, low=0.1, high=0.2, dual=1.5)),
    "cispo": (Cispo(cap=1.25), partial(oracle.cispo, cap=1.25)),
    "sapo": (Sapo(tau_positive=2.0, tau_negative=3.0), partial(oracle.sapo, positive=2.0, negative=3.0)),
}

RECS: dict[str, tuple[Part, oracle.SurrogateOracle]] = {
    "reinforce": (Reinforce(), oracle.reinforce),
    "one side": (
        Rec(weighted=False, low=0.1, high=0.25),
        partial(oracle.rec, region="one_side", weighted=False, low=0.1, high=0.25),
    ),
    "one side weighted": (Rec(), partial(oracle.rec, region="one_side", weighted=True, low=0.2, high=0.2)),
    "two sides": (Rec(region="two_side"), partial(oracle.rec, region="two_side", weighted=True, low=0.2, high=0.2)),
    "ring": (
        Rec(region="ring", weighted=False, low=0.1, high=0.1, far_low=0.3, far_high=0.4),
        partial(oracle.rec, region="ring", weighted=False, low=0.1, high=0.1, far=(0.3, 0.4)),
    ),
}
SURROGATES |= {name: RECS[name] for name in ("reinforce", "ring")}
"""The laws take every surrogate with every ratio and aggregate; of one family, two are enough for them."""

AGGREGATES: dict[str, tuple[Part, oracle.AggregateOracle]] = {
    "token mean": (TokenMean(), oracle.token_mean),
    "sequence mean": (SequenceMean(), oracle.sequence_mean),
    "sequence sum": (SequenceSum(), oracle.sequence_sum),
    "constant length": (ConstantLength(), partial(oracle.constant_length, length=LENGTH, per_sequence=True)),
    "constant 5": (
        ConstantLength(length=5, per_sequence=False),
        partial(oracle.constant_length, length=5, per_sequence=False),
    ),
    "step mean": (StepMean(), oracle.step_mean),
    "trajectory mean": (TrajectoryMean(), partial(oracle.trajectory_mean, within="token")),
    "trajectory mean of steps": (TrajectoryMean(within="step"), partial(oracle.trajectory_mean, within="step")),
}

CORRECTIONS: dict[str, tuple[Part, oracle.AggregateOracle]] = {
    "token truncate": (Truncate(), partial(oracle.truncate, unit="token", high=2.0)),
    "step truncate": (Truncate(unit="step", high=1.2), partial(oracle.truncate, unit="step", high=1.2)),
    "token mask": (Mask(), partial(oracle.mask, unit="token", low=0.5, high=2.0)),
    "step mask": (Mask(unit="step"), partial(oracle.mask, unit="step", low=0.5, high=2.0)),
    "trajectory mask": (
        Mask(unit="trajectory", low=0.8, high=3.0),
        partial(oracle.mask, unit="trajectory", low=0.8, high=3.0),
    ),
    "reject step": (Reject(low=0.8, high=1.25), partial(oracle.reject, unit="step", low=0.8, high=1.25)),
    "reject trajectory": (
        Reject(unit="trajectory", low=0.9, high=1.1),
        partial(oracle.reject, unit="trajectory", low=0.9, high=1.1),
    ),
    "off-policy": (OffPolicyMask(max_drop=0.1), partial(oracle.off_policy_mask, unit="step", max_drop=0.1)),
}
