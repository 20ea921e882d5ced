"""The rows of the table of metrics (`groupwise.training.metrics.table`) that are about the loss."""

from __future__ import annotations

from groupwise.losses import METRICS
from groupwise.training.metrics.metric import SHARE, Metric

STEPS_TOO_LARGE = "Above 0.2: steps are too large; lower the learning rate or the number of passes."

UNITS_AND_REMEDIES: dict[str, tuple[str, str]] = {
    "loss/ratio": (
        "0 upwards",
        "Far from 1: too many passes over one update, or too large a learning rate.",
    ),
    "loss/off_policy_ratio": (
        "0 upwards",
        "Far from 1: what is recalled is hardly the policy's own any more; lower `max_age` or `max_log_ratio`.",
    ),
    "loss/clip_fraction_high": (
        SHARE,
        STEPS_TOO_LARGE,
    ),
    "loss/clip_fraction_low": (
        SHARE,
        STEPS_TOO_LARGE,
    ),
    "loss/clip_fraction_dual": (
        SHARE,
        "Above 0.01: blamed tokens became likelier; lower the learning rate.",
    ),
    "loss/kl_to_old": (
        "nats",
        "Above 0.05: one update moves the policy far; lower the learning rate or the number of passes.",
    ),
    "loss/kl_to_reference": (
        "nats",
        "Growing steadily: the policy leaves what it started from; raise the weight of the KL penalty if that is not "
        "wanted.",
    ),
    "loss/mismatch": (
        "nats",
        "Not about 0: engine and learner compute different policies (precision, temperature, template); see "
        "`loss/mismatch_size`.",
    ),
    "loss/mismatch_size": (
        "nats",
        "Above 0.02: use one precision for both, or add a correction to the loss.",
    ),
    "loss/ratio_variance": (
        "0 upwards",
        "Well above the bound of the penalty, update after update: the multiplier grows; lower the learning rate.",
    ),
    "loss/correction": (
        "0 upwards",
        "Far from 1: the corrections carry the update; mend the mismatch instead.",
    ),
    "loss/rejected": (
        SHARE,
        "Above 0.1: much of what was sampled is thrown away; mend the mismatch, or widen the bounds.",
    ),
    "loss/entropy": (
        "nats",
        "As for `rollout/entropy`; this one is the learner's.",
    ),
    "loss/entropy_outside": (
        SHARE,
        "Above 0.5: the corridor is too narrow for how much tokens differ; widen it, or take the mean of a step.",
    ),
    "loss/pair_gap": (
        "nats",
        "Falling: the policy learns to prefer the losers; lower the learning rate.",
    ),
    "loss/pair_accuracy": (
        SHARE,
        "Flat at 0.5: returns do not say which attempts are likelier; look at the rewards. At 1: only the margin still "
        "trains.",
    ),
}
"""Of every metric that the losses measure, by name."""

LOSS_METRICS: dict[str, Metric] = {
    "loss/total": Metric(
        "what was minimised, mean over optimiser steps",
        "loss",
        "It need not fall: on-policy it says little. Not finite: the run stops; lower the learning rate.",
    ),
    **{name: Metric(METRICS[name], unit, remedy) for name, (unit, remedy) in UNITS_AND_REMEDIES.items()},
}
"""By name."""
