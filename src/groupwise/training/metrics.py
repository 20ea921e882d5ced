"""Every metric of a run: what it says, where it lies, and what to do when it looks bad.

docs/metrics.md is written from this table. A metric that is not in it cannot be logged; a part from elsewhere names
its own `extra/...`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from groupwise.learner.protocol import EXTRA, is_metric
from groupwise.losses import METRICS as MEASURED_BY_LOSSES
from groupwise.system.errors import TrainingError, nearest
from groupwise.system.text import describe_value

SHARE = "0 to 1"
"""The unit of shares."""


class Metric(NamedTuple):
    """What a metric is."""

    meaning: str
    """One sentence."""
    unit: str
    """Its unit, or where its values lie."""
    remedy: str
    """What a bad value looks like, and what to do then."""


# The rows of the table that are about the loss.

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
    **{name: Metric(MEASURED_BY_LOSSES[name], unit, remedy) for name, (unit, remedy) in UNITS_AND_REMEDIES.items()},
}
"""By name."""


# What the servers of an engine did in an update; `N` in a name stands for the number of a server, from 0.

REPLICA_NUMBER = re.compile(r"^replicas/[0-9]+/")
"""How the name of a metric of one replica begins."""

REPLICA_METRICS: dict[str, Metric] = {
    "replicas/alive": Metric(
        "servers that answer requests",
        "servers",
        "Below what was started: the log has a sentence for each that is out; it comes back at a hand-over, after the "
        "current weights and a check of its own.",
    ),
    "replicas/left": Metric(
        "servers that went out since the update before: they died, hung, answered garbage or failed a hand-over",
        "servers",
        "Above 0 in many updates: look into the log of the server; one that is merely slow needs a longer "
        "`engine.request_timeout`.",
    ),
    "replicas/readmitted": Metric(
        "servers that came back since the update before",
        "servers",
        "Rising with `replicas/left`: a server comes and goes; take it away.",
    ),
    "replicas/sent_again": Metric(
        "requests that were sent to another server, with the same seed, because theirs failed",
        "requests",
        "Above 0: nothing is lost but time; see `replicas/left`.",
    ),
    "replicas/N/requests": Metric(
        "requests that server N answered",
        "requests",
        "Far from equal among servers: attempts differ in length, or one was out.",
    ),
    "replicas/N/tokens": Metric(
        "tokens that server N sampled",
        "tokens",
        "As for `replicas/N/requests`.",
    ),
    "replicas/N/seconds": Metric(
        "time that calls to server N took, summed over calls that ran side by side",
        "s",
        "Far above the others' for as many tokens: the server is slow or shares its machine.",
    ),
    "replicas/N/faults": Metric(
        "calls and hand-overs that server N failed at",
        "faults",
        "As for `replicas/left`.",
    ),
    "replicas/N/handover_seconds": Metric(
        "time of the hand-over of weights to server N",
        "s",
        "Far above the others': its disk or network is slow; put `training.weight_transfer.folder` where it is fast.",
    ),
}
"""Metrics of engines that are servers, by name."""


METRICS: dict[str, Metric] = {
    "rollout/success": Metric(
        "share of the update's attempts that solved their task",
        SHARE,
        "Flat at 0: no attempt earns anything, so nothing is learnt; begin with a warm start or easier tasks. Rising "
        "here but not in evaluation: the policy learns the training tasks by heart; use more of them.",
    ),
    "rollout/return": Metric(
        "mean over attempts of the sum of rewards",
        "reward",
        "Rising while success falls: the rewards pay for something other than the task; look at them.",
    ),
    "rollout/steps": Metric(
        "mean steps of an attempt",
        "steps",
        "At the environment's `max_steps`: most attempts run in circles; look at some with `groupwise inspect`.",
    ),
    "rollout/well_formed": Metric(
        "share of steps whose response had the form that was asked for",
        SHARE,
        "Low: show the form in the prompt, warm-start, allow more tokens (`rollout/cut_off`), or punish malformed "
        "responses (`invalid_penalty`, the rewards `malformed_response` and `format`).",
    ),
    "rollout/accepted": Metric(
        "share of steps whose action the environment accepted, whatever the form of the response",
        SHARE,
        "Low: show the admissible actions (`rollout.template.show_admissible`), or warm-start. Punish refused actions "
        "only where the prompt lists what is possible (docs/adr/0006-invalid-penalty.md).",
    ),
    "rollout/valid": Metric(
        "share of steps that were well formed and accepted",
        SHARE,
        "Low: `rollout/well_formed` and `rollout/accepted` say which of the two it is.",
    ),
    "rollout/faults": Metric(
        "attempts that a fault of the environment or the engine ended; they leave every statistic",
        "attempts",
        "Above 0: read the error on the trajectory with `groupwise inspect`; below `training.min_survivors` the run "
        "stops.",
    ),
    "rollout/truncated": Metric(
        "share of attempts that a limit on steps cut off",
        SHARE,
        "High: raise the environment's `max_steps`, or the policy wanders; a truncated attempt counts as failed.",
    ),
    "rollout/group_size": Metric(
        "mean attempts of a group that survived",
        "attempts",
        "Below the plan's number of attempts: faults thin the groups out.",
    ),
    "rollout/not_admitted": Metric(
        "share of the attempts that were to be compared which `algorithm.admissions` left out",
        SHARE,
        "High: much is played for nothing; look at who is left out with `groupwise inspect`, and mend the cause.",
    ),
    "rollout/zero_spread": Metric(
        "share of groups whose attempts all earned the same; between them there is nothing to compare",
        SHARE,
        "Near 1: the tasks are too hard or too easy for the policy; choose others, or raise the number of attempts or "
        "the temperature.",
    ),
    "rollout/return_spread": Metric(
        "mean over groups of two or more of the standard deviation of what their attempts earned",
        "reward",
        "Shrinking to 0: attempts become alike; see `rollout/zero_spread` and `rollout/entropy`.",
    ),
    "rollout/response_tokens": Metric(
        "mean sampled tokens of a response",
        "tokens",
        "Growing without more success: answers ramble; an overlong penalty or a smaller `rollout.max_tokens` helps.",
    ),
    "rollout/cut_off": Metric(
        "share of responses that reached `rollout.max_tokens` before they ended",
        SHARE,
        "Above a few per cent: raise `rollout.max_tokens`, or teach the model to end its responses (warm start).",
    ),
    "rollout/entropy": Metric(
        "mean entropy, over sampled tokens, of the distributions they were drawn from",
        "nats",
        "Falling to 0 early: the policy stops exploring; lower the learning rate, or add an entropy bonus or a KL "
        "penalty. Rising: the updates blur the policy; lower the learning rate.",
    ),
    "rollout/total_steps": Metric(
        "steps of all attempts of the update, guided ones and those that a fault ended included",
        "steps",
        "What the update cost in environment steps: compare methods at equal sums of it.",
    ),
    "rollout/total_tokens": Metric(
        "sampled tokens of all attempts of the update, guided ones and those that a fault ended included",
        "tokens",
        "What the update cost in sampled tokens: compare methods at equal sums of it.",
    ),
    "rollout/age": Metric(
        "mean over sampled tokens of how many versions the weights that sampled them lie behind those that learn; only "
        "at a lag above 0, and without one where attempts were played ahead before",
        "versions",
        "1 with `rollout.lag = 1`, 0 in the first update. Near `rollout.max_age` with `free`: sampling is what the run "
        "waits for; add engines, or lower `max_age`.",
    ),
    "rollout/max_age": Metric(
        "the same of the oldest token",
        "versions",
        "Never above `rollout.max_age`: attempts are not asked for earlier than that.",
    ),
    "credit/groups_with_signal": Metric(
        "share of groups in which some step has credit other than 0",
        SHARE,
        "Low: most of what is sampled teaches nothing; recall past attempts (`algorithm.replay`), give guidance "
        "(`algorithm.guidance`), or sample other tasks (`rollout.plan`).",
    ),
    "credit/groups_rescued": Metric(
        "share of groups whose attempts all did equally well, and that have credit after something was recalled into "
        "them, added to their rewards, or shown in their prompt",
        SHARE,
        "0 with `credit/groups_with_signal` low: no past attempt of the other kind is there yet, or too far back.",
    ),
    "credit/in_even_groups": Metric(
        "share of all credit (absolute) that lies in groups whose attempts all had the same score and the same sum of "
        "rewards, and that nothing was done for",
        SHARE,
        "High: something small rules the update, such as a penalty divided by its own deviation; set `invalid_penalty` "
        "and `refused_penalty` to 0, or `scale` to `none` (docs/adr/0006-invalid-penalty.md). Lengths alone count too, "
        "under discounting.",
    ),
    "credit/penalties_alone": Metric(
        "1 where nobody earned anything and credit is gone without penalties (on malformed or refused actions, on "
        "length); else 0",
        "0 or 1",
        "1 in many updates: the run learns what costs, and nothing of its tasks; set the penalties to 0, take easier "
        "tasks, or begin with a warm start.",
    ),
    "credit/compared": Metric(
        "share of steps that somebody else was compared with",
        SHARE,
        "Low: groups are too fine (states too detailed, histories too long); compare coarser states or fewer of them.",
    ),
    "credit/own_rollout_only": Metric(
        "fraction of the compared steps that have no other rollout in any of their groups: their advantage compares a "
        "rollout with itself",
        SHARE,
        'High: rollouts go in circles, or hardly meet. With `peers = "other_rollouts"` the groupers `by_state` and '
        "`by_history` compare no such steps (docs/audit.md); coarser states let rollouts meet.",
    ),
    "credit/size": Metric(
        "mean absolute credit of a step",
        "credit",
        "0: nothing was learnt from this update; see `rollout/zero_spread`.",
    ),
    "credit/kept": Metric(
        "share of steps that the filters let train",
        SHARE,
        "Low: the filters drop most of what was sampled; loosen them, or sample what they would keep.",
    ),
    "replay/recalled": Metric(
        "past attempts that took part in the update",
        "attempts",
        "0 for long: tasks do not come round again; see `training.curriculum.first`.",
    ),
    "replay/left_out": Metric(
        "past attempts that were left out, since the policy has moved too far away from them",
        "attempts",
        "Above `replay/recalled`: the past attempts are stale; lower the learning rate or the number of tasks.",
    ),
    "replay/age": Metric(
        "mean number of versions that the weights lie back which sampled the recalled attempts",
        "versions",
        "Growing with the run: successes are old; look at what the policy has unlearnt.",
    ),
    "replay/log_ratio": Metric(
        "mean over recalled attempts of the distance between their tokens' log-probs now and when they were sampled",
        "nats",
        "Near `max_log_ratio`: what is recalled is hardly the policy's own any more.",
    ),
    "guidance/groups": Metric(
        "groups with guided attempts: with guidance in the prompt, forced tokens or another temperature",
        "groups",
        "As many as tasks: guidance costs as much as the attempts themselves; lower `tau`, or set `max_tasks`.",
    ),
    "guidance/success": Metric(
        "share of the guided attempts that solved their task",
        SHARE,
        "Not above `rollout/success` of the same tasks: the guidance does not help; change its prompt.",
    ),
    "measures/read_tokens": Metric(
        "tokens that the measures of the update had a model read, beside those that were sampled for it",
        "tokens",
        "Larger than `rollout/total_tokens` many times over: the measures cost more than the attempts; ask less.",
    ),
    "measures/sampled_tokens": Metric(
        "tokens that the measures of the update had the engine sample",
        "tokens",
        "What measuring costs beside `rollout/total_tokens`: compare methods at equal sums of both.",
    ),
    "measures/questions": Metric(
        "questions that the measures of the update asked the judge",
        "questions",
        "What a judge costs that is asked about everything; see `judge/calls`.",
    ),
    "judge/calls": Metric(
        "calls of the judge for what no earlier update had asked, with those from which no score came",
        "calls",
        "What a judge costs that is paid by the call: equal questions are asked once. `max_calls` is a limit to it.",
    ),
    "judge/unreadable": Metric(
        "calls of the judge from which no score came: no answer, or one without a score",
        "calls",
        "More than a few: have the prompt ask for what is read, or raise `timeout`; judge.jsonl has what was said.",
    ),
    "judge/fallbacks": Metric(
        "questions that got the declared fallback in the place of an answer",
        "questions",
        "Above 0: credit reads a score that nobody gave; look into judge.jsonl for why.",
    ),
    "shaping/groups": Metric(
        "share of groups to whose attempts shaping added something",
        SHARE,
        "Near 1: the shaped reward is most of what is learnt from; watch `rollout/truncated` and lengths.",
    ),
    "learner/computed": Metric(
        "share of the samples that train which were computed: a loss without penalties needs none without credit",
        SHARE,
        "Low: most of what is sampled teaches nothing; see `credit/groups_with_signal`. Metrics of the loss are over "
        "what was computed, and left out at 0.",
    ),
    "learner/tokens": Metric(
        "sampled tokens that trained, those of samples without credit included",
        "tokens",
        "0: every sample was filtered out, and the weights were left as they were.",
    ),
    "learner/pairs": Metric(
        "pairs of attempts, or of steps, that the loss held against each other",
        "pairs",
        "0: at no task did two attempts that train earn differently, and the loss had nothing to say.",
    ),
    "learner/token_ratio": Metric(
        "tokens of the samples that were computed over tokens computed for them: how often each would have been "
        "computed without shared prefixes",
        "1 and more",
        "Near 1: prompts share little; a memory that keeps the beginning of prompts (`anchored_window`, `full`) shares "
        "more. Below 1: rows are padded, the model does not run packed; the log says why.",
    ),
    "learner/grad_norm": Metric(
        "length of the gradient before clipping, mean over optimiser steps",
        "gradient",
        "Far above `max_grad_norm` all the time: only the direction counts any more; lower the learning rate. Single "
        "peaks are what clipping is for.",
    ),
    "learner/learning_rate": Metric(
        "step size of the last optimiser step",
        "step size",
        "Not what you meant: look at the schedule in [training.learner].",
    ),
    "learner/optimiser_steps": Metric(
        "optimiser steps so far",
        "steps",
        "Above the number of updates: passes or mini-batches are more than one, and later steps are off-policy.",
    ),
    "learner/reference": Metric(
        "the update whose policy is the reference from the next update on, 0 = the one the run started from; where a "
        "part chooses",
        "update",
        "Moving on at every update: the bound on the KL is too tight, and the penalty holds nothing.",
    ),
    "engine/canary_gap": Metric(
        "largest difference between the engine's and the learner's log-probs of a fixed prompt after the hand-over",
        "nats",
        "Above 1e-3 the run stops by itself: the engine did not take the weights over, or computes in lower precision.",
    ),
    **LOSS_METRICS,
    **REPLICA_METRICS,
    "evaluation/success": Metric(
        "share of the evaluation's attempts that solved their task, every task counting the same",
        SHARE,
        "Falling while `rollout/success` rises: the policy learns the training tasks by heart; use more of them.",
    ),
    "evaluation/success_low": Metric(
        "lower end of its 95 % interval for tasks of this kind",
        SHARE,
        "Too far from the upper end to tell two policies apart: evaluate more tasks, then more seeds.",
    ),
    "evaluation/success_high": Metric(
        "upper end of its 95 % interval for tasks of this kind",
        SHARE,
        "See `evaluation/success_low`.",
    ),
    "evaluation/steps": Metric(
        "mean steps of the evaluation's attempts",
        "steps",
        "As for `rollout/steps`.",
    ),
    "seconds/rollout": Metric(
        "time spent sampling attempts, environments included; near 0 where they were played ahead",
        "s",
        "Most of the time is usual. Fewer or shorter attempts, or more memory sharing (`full`, `anchored_window`).",
    ),
    "seconds/credit": Metric(
        "time spent comparing attempts and making samples",
        "s",
        "More than a few per cent: states are large values; give short keys.",
    ),
    "seconds/learn": Metric(
        "time spent in forward and backward passes and optimiser steps",
        "s",
        "See `speed/trained_tokens`.",
    ),
    "seconds/wait": Metric(
        "time in which an update was learnt and the attempts of the next were still played; only at a lag above 0",
        "s",
        "Most of the update: sampling takes longer than learning; add engines. Near 0: learning does.",
    ),
    "seconds/prepare": Metric(
        "time spent choosing, measuring and recalling attempts that were played ahead; only at a lag above 0",
        "s",
        "More than a few per cent: measures are dear; ask less.",
    ),
    "seconds/handover": Metric(
        "time spent handing the weights to the engine and checking them",
        "s",
        "More than a few per cent: the model is large for its updates; make larger updates.",
    ),
    "speed/sampled_tokens": Metric(
        "sampled tokens for each second of sampling, environments included",
        "tokens / s",
        "Low on a small model: more threads than free cores; see `groupwise doctor`.",
    ),
    "speed/trained_tokens": Metric(
        "trained tokens for each second of learning, those of samples without credit included",
        "tokens / s",
        "Low: raise `training.learner.token_budget` as far as memory allows; keep `share_prefixes` on.",
    ),
    "speed/played_seconds": Metric(
        "time that the update's attempts took to play, beside other stages; only at a lag above 0",
        "s",
        "Longer than the rest of an update: sampling is what the run waits for; add engines. See `seconds/wait`.",
    ),
    "speed/env_seconds": Metric(
        "the part of `seconds/rollout`, or of `speed/played_seconds`, in which sampling waited for environments to "
        "open and to act",
        "s",
        "More than half of `seconds/rollout`: environments hold the run up; raise `rollout.workers`, up to one a core.",
    ),
    "speed/env_steps": Metric(
        "steps that environments took for each second of waiting for them, all workers together, opening included",
        "steps / s",
        "Falling during a run: look for an environment that grows slower; `groupwise check env` says how fast one is.",
    ),
}
"""Every metric that a run may log, by name."""


def find_metric(name: str) -> Metric | None:
    """What a metric is, by its name; None where the table has none of it. Those of a replica have its number."""
    return METRICS.get(REPLICA_NUMBER.sub("replicas/N/", name))


def check_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Refuse a metric whose name the table does not have, or whose value is no number; the metrics as plain numbers."""
    for name, value in metrics.items():
        if not is_metric(name, value):
            raise TrainingError(f"metric {name!r} is {describe_value(value)}; give a finite number, or leave it out")
        if find_metric(name) is None and not name.startswith(EXTRA):
            raise TrainingError(
                f"metric {name!r} is not in the table of training/metrics.py; {nearest(name, METRICS)}. A part "
                f"from elsewhere names its own {EXTRA}..."
            )
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in metrics.items()}
