"""The metrics of the loss: a part of the table in `groupwise.training.metrics`."""

from __future__ import annotations

from groupwise.training.metric import SHARE, Metric

LOSS_METRICS: dict[str, Metric] = {
    "loss/total": Metric(
        "what was minimised, mean over optimiser steps",
        "loss",
        "It need not fall: on-policy it says little. Not finite: the run stops; lower the learning rate.",
    ),
    "loss/ratio": Metric(
        "mean ratio of the tokens that train; 1 on-policy",
        "0 upwards",
        "Far from 1: too many passes over one update, or too large a learning rate.",
    ),
    "loss/off_policy_ratio": Metric(
        "mean ratio of the tokens that another policy sampled, against that policy",
        "0 upwards",
        "Far from 1: what is recalled is hardly the policy's own any more; lower `max_age` or `most_log_ratio`.",
    ),
    "loss/clip_fraction_high": Metric(
        "share of tokens whose ratio passed the upper bound of the surrogate",
        SHARE,
        "Above 0.2: steps are too large; lower the learning rate or the number of passes.",
    ),
    "loss/clip_fraction_low": Metric(
        "share of tokens whose ratio passed the lower bound of the surrogate",
        SHARE,
        "Above 0.2: steps are too large; lower the learning rate or the number of passes.",
    ),
    "loss/clip_fraction_dual": Metric(
        "share of tokens of negative credit whose ratio passed the dual bound",
        SHARE,
        "Above 0.01: blamed tokens became likelier; lower the learning rate.",
    ),
    "loss/kl_to_old": Metric(
        "how far the policy has moved since the start of the update: mean of rho - 1 - log rho",
        "nats",
        "Above 0.05: one update moves the policy far; lower the learning rate or the number of passes.",
    ),
    "loss/kl_to_reference": Metric(
        "how far the policy is from the reference: mean of k3",
        "nats",
        "Growing steadily: the policy leaves what it started from; raise the weight of the KL penalty if that is not "
        "wanted.",
    ),
    "loss/mismatch": Metric(
        "learner minus engine: mean of logp_old - logp_behaviour",
        "nats",
        "Not about 0: engine and learner compute different policies (precision, temperature, template); see "
        "`loss/mismatch_size`.",
    ),
    "loss/mismatch_size": Metric(
        "learner against engine: mean of |logp_old - logp_behaviour|",
        "nats",
        "Above 0.02: use one precision for both, or add a correction to the loss.",
    ),
    "loss/correction": Metric(
        "mean weight that the corrections give a token",
        "0 upwards",
        "Far from 1: the corrections carry the update; mend the mismatch instead.",
    ),
    "loss/rejected": Metric(
        "share of tokens that the corrections dropped",
        SHARE,
        "Above 0.1: much of what was sampled is thrown away; mend the mismatch, or widen the bounds.",
    ),
    "loss/entropy": Metric(
        "mean entropy of the distributions the tokens were drawn from",
        "nats",
        "As for `rollout/entropy`; this one is the learner's.",
    ),
    "loss/pair_gap": Metric(
        "how much likelier, a token, the winner of a pair is than the loser: mean over the pairs",
        "nats",
        "Falling: the policy learns to prefer the losers; lower the learning rate.",
    ),
    "loss/pair_accuracy": Metric(
        "share of pairs whose winner is likelier, a token, than the loser",
        SHARE,
        "Flat at 0.5: returns do not say which attempts are likelier; look at the rewards. At 1: only the margin still "
        "trains.",
    ),
}
"""By name."""
