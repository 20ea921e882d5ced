"""The metrics of an update, all together (of its attempts, credit, learning and speed), and the update as a record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from groupwise.data.records import FAULTS, Origin, StopReason, Trajectory, list_valid, score_of
from groupwise.data.samples import Totals
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.step_table import StepTable
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.stateful import join_columns
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.rollout.plans import MARK
from groupwise.store.journal import Update
from groupwise.training.collect.collect import UpdateAttempts
from groupwise.training.collect.pending import write_pending
from groupwise.training.config.run_config import RunConfig
from groupwise.training.loss_context import NUM_PAIRS
from groupwise.training.metrics import check_metrics
from groupwise.training.samples import CreditedBatch


def compute_update_metrics(
    config: RunConfig,
    attempts: UpdateAttempts,
    batch: CreditedBatch,
    totals: Totals,
    *,
    learned: Mapping[str, float],
    of_engine: Mapping[str, float],
    seconds: Mapping[str, float],
) -> dict[str, float]:
    """Every metric of an update by name, checked against the table of metrics."""
    algorithm = config.algorithm
    metrics = compute_rollout_metrics(attempts.played, attempts.survivors)
    metrics |= {**of_engine, "learner/tokens": float(totals.tokens)}
    metrics["credit/penalties_alone"] = float(credit_rests_on_penalties(algorithm, batch))
    metrics |= compute_credit_metrics(*batch.for_fresh()) | compute_rescue_metrics(attempts, batch)
    sampled = int(metrics["rollout/total_tokens"])
    metrics |= compute_speed_metrics(sampled, totals, seconds, attempts.waiting, attempts.played_in)
    metrics |= {**attempts.measures_cost, **learned, **batch.context.metrics()}
    if config.rollout.lag or attempts.played_in is not None:  # played ahead, before the run went on without a lag
        metrics |= compute_age_metrics(attempts.chosen, batch.version)
    if algorithm.pairing is not None:
        metrics[NUM_PAIRS] = totals.pairs
    return check_metrics({**metrics, **seconds})


def describe_update(
    number: int,
    attempts: UpdateAttempts,
    batch: CreditedBatch,
    metrics: dict[str, float],
    ahead: Mapping[int, UpdateAttempts],
) -> Update:
    """The update as the journal keeps it: each attempt with its credit, faults, what was set aside, states, metrics."""
    credit, num = batch.by_trajectory(), batch.num_fresh
    recalled = zip(attempts.recalled, credit[num:], strict=True)
    return Update(
        number=number,
        version=number,
        metrics=metrics,
        trajectories=attempts.chosen,
        credit=credit[:num],
        faults=attempts.faults,
        set_aside=attempts.set_aside,
        request_words=attempts.request_words,
        recalled=[replace(past, credit=tuple(values)) for past, values in recalled],
        states=batch.states,
        pending={following: write_pending(pending) for following, pending in ahead.items()},
    )


# Whether penalties alone made an update's credit: nobody earned anything, and what differs is what was taken away.


def credit_rests_on_penalties(algorithm: Algorithm, batch: CreditedBatch) -> bool:
    """Whether the credit that trains lies in tasks at which nobody earned anything, and is gone without penalties.

    The second is tried: the same attempts, every step well formed, accepted and paid 0, are given credit again. So a
    method that makes something of failure by itself (a made-up success to compare with) is not taken for penalties.
    """
    trains = (batch.values != 0) & batch.keep
    if not trains.any() or (trains & ~batch.unearned).any():
        return False
    if any(is_shaped(trajectory) for trajectory in batch.trajectories):
        return False
    try:
        unpunished = StepTable.from_trajectories(_remove_penalties(batch.trajectories), version=batch.version)
        credit_left = algorithm.credit(join_columns(unpunished, batch.states))
    except Exception:  # a part from elsewhere may refuse what was never played; that must not end the run
        return False
    return not (credit_left.values * batch.keep).any()


def _remove_penalties(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    unpunished: dict[str, Any] = {"reward": 0.0, "well_formed": True, "accepted": True, "recorded_valid": None}
    return [
        replace(trajectory, steps=tuple(replace(step, **unpunished) for step in trajectory.steps))
        for trajectory in trajectories
    ]


# Metrics of groups that would have taught nothing: which were rescued by replay, guidance or shaping.


def is_shaped(trajectory: Trajectory) -> bool:
    """Whether shaping added something to the rewards of an attempt."""
    return any(map(attrgetter("shaped"), trajectory.steps))


def compute_rescue_metrics(attempts: UpdateAttempts, batch: CreditedBatch) -> dict[str, float]:
    """Groups with and without signal, and what was recalled, guided and shaped for them; nothing that was not done."""
    chosen, groups = attempts.chosen, dict[str, list[int]]()
    for number, trajectory in enumerate(chosen):
        groups.setdefault(trajectory.task.id, []).append(number)
    credit, joined = batch.by_trajectory(), {past.task for past in attempts.recalled}
    scores = [score_of(trajectory) for trajectory in chosen]
    shaped = [is_shaped(trajectory) for trajectory in chosen]
    has_signal, is_rescued, sizes, in_even = list[bool](), list[bool](), list[float](), list[float]()
    for task, members in groups.items():
        size = [abs(value) for number in members for value in credit[number]]
        sizes.append(sum(size))
        has_signal.append(any(size))
        # In the update, or paid as it was, only to give the group something to tell apart.
        is_aided = task in joined or any(shaped[n] or chosen[n].origin is not Origin.FRESH for n in members)
        # What succeeded with guidance is there because the group had nothing: evenness is that of the others.
        is_even = len({scores[n] for n in members if not chosen[n].off_policy}) == 1
        is_rescued.append(has_signal[-1] and is_even and is_aided)
        # Neither score nor return says anything where all members have the same.
        is_same = len({(scores[n], math.fsum([step.reward for step in chosen[n].steps])) for n in members}) == 1
        if is_same and not is_aided:
            in_even.append(sizes[-1])
    metrics = {"credit/groups_with_signal": _mean(has_signal), "credit/groups_rescued": _mean(is_rescued)}
    metrics["credit/in_even_groups"] = sum(in_even) / sum(sizes) if any(sizes) else 0.0
    if attempts.rejected_fraction is not None:
        metrics["rollout/not_admitted"] = attempts.rejected_fraction
    if any(shaped):
        metrics["shaping/groups"] = _mean([any(shaped[n] for n in members) for members in groups.values()])
    return metrics | _metrics_of_replay(attempts) | _metrics_of_guidance(chosen)


def _metrics_of_replay(attempts: UpdateAttempts) -> dict[str, float]:
    if not (attempts.recalled or attempts.left_out):
        return {}
    newest = max((max(trajectory.versions, default=0) for trajectory in attempts.chosen), default=0)
    metrics = {"replay/recalled": float(len(attempts.recalled)), "replay/left_out": float(attempts.left_out)}
    if attempts.recalled:
        metrics["replay/age"] = _mean([newest - recalled.past.version for recalled in attempts.recalled])
        metrics["replay/log_ratio"] = _mean([recalled.log_ratio or 0.0 for recalled in attempts.recalled])
    return metrics


def _metrics_of_guidance(chosen: Sequence[Trajectory]) -> dict[str, float]:
    # The copy of a success without guidance was not played itself.
    guided = [
        trajectory
        for trajectory in chosen
        if trajectory.origin is Origin.REFLECTED
        or (
            trajectory.origin is Origin.GUIDED
            and not (trajectory.parent or "").startswith(f"{trajectory.task.id}{MARK}")
        )
    ]
    if not guided:
        return {}
    return {
        "guidance/groups": float(len({trajectory.task.id for trajectory in guided})),
        "guidance/success": _mean([score_of(trajectory) for trajectory in guided]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


# What the attempts of an update look like, and the credit of their steps.


def compute_rollout_metrics(played: Sequence[Trajectory], survivors: Sequence[Trajectory]) -> dict[str, float]:
    """What an update's attempts look like; statistics are over the survivors, of which there is at least one."""
    steps = [step for trajectory in survivors for step in trajectory.steps]
    returns = [sum([step.reward for step in trajectory.steps]) for trajectory in survivors]
    groups: dict[str, list[float]] = {}
    for trajectory, earned in zip(survivors, returns, strict=True):
        score = earned if trajectory.outcome is None else trajectory.outcome
        groups.setdefault(trajectory.task.id, []).append(score)
    metrics = {
        "rollout/return": _mean(returns),
        "rollout/steps": len(steps) / len(survivors),
        "rollout/faults": float(sum([trajectory.stop in FAULTS or not trajectory.steps for trajectory in played])),
        "rollout/truncated": _mean([trajectory.stop is StopReason.TRUNCATED for trajectory in survivors]),
        "rollout/group_size": len(survivors) / len(groups),
        "rollout/zero_spread": _mean([len(set(scores)) == 1 for scores in groups.values()]),
        "rollout/response_tokens": _mean([len(step.response_ids) for step in steps]),
        "rollout/cut_off": _mean([step.cut for step in steps]),
        "rollout/total_steps": float(sum([len(trajectory.steps) for trajectory in played])),
        "rollout/total_tokens": float(count_sampled(played)),
    }
    # What nobody measured is left out: it is not 0.
    optional: dict[str, list[float]] = {
        "rollout/success": [trajectory.scores["success"] for trajectory in survivors if "success" in trajectory.scores],
        "rollout/well_formed": [step.well_formed for step in steps if step.well_formed is not None],
        "rollout/accepted": [step.accepted for step in steps if step.accepted is not None],
        "rollout/valid": [valid for valid in list_valid(steps) if valid is not None],
        "rollout/return_spread": [float(np.std(scores)) for scores in groups.values() if len(scores) > 1],
        "rollout/entropy": [entropy for step in steps for entropy in step.entropy],
    }
    return metrics | {name: _mean(values) for name, values in optional.items() if values}


def count_sampled(attempts: Sequence[Trajectory]) -> int:
    """Count the sampled tokens of attempts."""
    return sum([len(step.response_ids) for trajectory in attempts for step in trajectory.steps])


def compute_speed_metrics(
    sampled: int, totals: Totals, seconds: Mapping[str, float], waiting: EnvTiming, played_in: float | None = None
) -> dict[str, float]:
    """Tokens a second of sampling and of learning, from the seconds by stage; steps a second of environments.

    `played_in` are the seconds of sampling where it went on beside other stages.
    """
    counts = {
        "sampled_tokens": (sampled, seconds.get("seconds/rollout") if played_in is None else played_in),
        "trained_tokens": (totals.tokens, seconds.get("seconds/learn")),
        "env_steps": (waiting.steps, waiting.seconds),
    }
    speeds = {f"speed/{name}": number / taken for name, (number, taken) in counts.items() if number and taken}
    ahead = {} if played_in is None else {"speed/played_seconds": played_in}
    return speeds | ahead | {"speed/env_seconds": waiting.seconds}


def compute_age_metrics(chosen: Sequence[Trajectory], version: int) -> dict[str, float]:
    """How many versions before the learner's the weights were that sampled the tokens; nothing where nobody says."""
    ages, tokens = list[int](), list[int]()
    for trajectory in chosen:
        if len(trajectory.versions) == 1:
            ages.append(version - trajectory.versions[0])
            tokens.append(count_sampled([trajectory]))
        else:
            spans = [span for step in trajectory.steps for span in step.versions]
            ages += [version - sampled_by for sampled_by, _ in spans]
            tokens += [num for _, num in spans]
    if not sum(tokens):
        return {}
    mean = sum(age * num for age, num in zip(ages, tokens, strict=True)) / sum(tokens)
    return {"rollout/age": mean, "rollout/max_age": float(max(ages))}


def compute_credit_metrics(
    values: FloatArray, compared: BoolArray, keep: BoolArray, own_rollout_only: BoolArray | None
) -> dict[str, float]:
    """What an update's credit looks like, given one entry per step; nothing if there are no steps."""
    if not len(values):
        return {}
    own = {}
    if own_rollout_only is not None and compared.any():
        own = {"credit/own_rollout_only": float(own_rollout_only.sum() / compared.sum())}
    return own | {
        "credit/compared": float(compared.mean()),
        "credit/size": float(np.abs(values).mean()),
        "credit/kept": float(keep.mean()),
    }
