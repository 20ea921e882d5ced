"""The metrics of an update, and the update as the journal keeps it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, filterfalse
from operator import attrgetter
from typing import Any

import numpy as np

from groupwise.data.records import FAULTS, Origin, Step, StopReason, Trajectory, has_survived, list_valid, score_of
from groupwise.data.samples import Totals
from groupwise.data.step_table import StepTable
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.stateful import join_columns
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.rollout.plans import MARK
from groupwise.store.journal import Update
from groupwise.training.collect.collect import UpdateRollouts
from groupwise.training.collect.pending import write_pending
from groupwise.training.config.run_config import RunConfig
from groupwise.training.loss_context import NUM_PAIRS
from groupwise.training.metrics import check_metrics
from groupwise.training.samples import CreditedBatch


def compute_update_metrics(
    config: RunConfig,
    rollouts: UpdateRollouts,
    batch: CreditedBatch,
    totals: Totals,
    *,
    learned: Mapping[str, float],
    of_engine: Mapping[str, float],
    seconds: Mapping[str, float],
) -> dict[str, float]:
    """Every metric of an update by name, checked against the table of metrics."""
    algorithm = config.algorithm
    metrics = compute_rollout_metrics(rollouts.played, rollouts.survivors)
    if config.rollout.max_prompt_tokens is not None:
        steps = chain.from_iterable(map(attrgetter("steps"), rollouts.survivors))
        metrics["rollout/prompts_cut"] = _mean([step.prompt_cut > 0 for step in steps])
    metrics |= {**of_engine, "learner/tokens": float(totals.tokens)}
    metrics["advantage/penalties_alone"] = float(credit_rests_on_penalties(algorithm, batch))
    metrics |= compute_credit_metrics(batch) | compute_rescue_metrics(rollouts, batch)
    sampled = int(metrics["rollout/total_tokens"])
    metrics |= compute_speed_metrics(sampled, totals, seconds, rollouts.waiting, rollouts.played_in)
    metrics |= {**rollouts.scorer_costs, **learned}
    for name, channel in batch.context.channels.items():
        metrics[f"extra/channel/{name}"] = float(np.abs(channel).mean())
    if config.rollout.lag or rollouts.played_in is not None:  # sampled ahead, before the run was resumed with lag 0
        metrics |= compute_age_metrics(rollouts.chosen, batch.version)
    if algorithm.pairing is not None:
        metrics[NUM_PAIRS] = totals.pairs
    return check_metrics({**metrics, **seconds})


def describe_update(
    number: int,
    rollouts: UpdateRollouts,
    batch: CreditedBatch,
    metrics: dict[str, float],
    ahead: Mapping[int, UpdateRollouts],
) -> Update:
    credit, num = batch.by_trajectory(), batch.num_fresh
    replayed = zip(rollouts.replayed, credit[num:], strict=True)
    return Update(
        number=number,
        version=number,
        metrics=metrics,
        trajectories=rollouts.chosen,
        credit=credit[:num],
        faults=list(filterfalse(has_survived, rollouts.played)),
        set_aside=rollouts.set_aside,
        request_words=rollouts.request_words,
        replayed=[replace(past, credit=tuple(values)) for past, values in replayed],
        states=batch.states,
        pending={following: write_pending(pending) for following, pending in ahead.items()},
    )


def credit_rests_on_penalties(algorithm: Algorithm, batch: CreditedBatch) -> bool:
    """Whether penalties alone made the advantages: no rollout got a reward, and without penalties all are 0.

    This is tested by computing the advantages again, with each step well-formed, accepted and with reward 0. A method
    that makes something of failure by itself (a made-up success to compare with) is therefore not counted.
    """
    trains = (batch.values != 0) & batch.keep
    if not trains.any() or (trains & ~batch.unearned).any() or any(map(is_shaped, batch.trajectories)):
        return False
    unpunished: dict[str, Any] = {"reward": 0.0, "well_formed": True, "accepted": True, "recorded_valid": None}
    try:
        table = StepTable.from_trajectories(
            [
                replace(trajectory, steps=tuple(replace(step, **unpunished) for step in trajectory.steps))
                for trajectory in batch.trajectories
            ],
            version=batch.version,
        )
        credit_left = algorithm.credit(join_columns(table, batch.states))
    except Exception:  # an outside part may reject rollouts that were never sampled; that must not end the run
        return False
    return not (credit_left.values * batch.keep).any()


def is_shaped(trajectory: Trajectory) -> bool:
    """Whether group reward shaping added something to the rewards of a rollout."""
    return any(map(attrgetter("shaped"), trajectory.steps))


def compute_rescue_metrics(rollouts: UpdateRollouts, batch: CreditedBatch) -> dict[str, float]:
    """Which groups have a learning signal, and how many of them got it from replay, hints or shaping."""
    chosen, groups = rollouts.chosen, dict[str, list[int]]()
    scores, returns, shaped = list[float](), list[float](), list[bool]()
    for number, trajectory in enumerate(chosen):
        groups.setdefault(trajectory.task.id, []).append(number)
        scores.append(score_of(trajectory))
        returns.append(math.fsum(map(attrgetter("reward"), trajectory.steps)))
        shaped.append(any(map(attrgetter("shaped"), trajectory.steps)))
    credit, joined = batch.by_trajectory(), set(map(attrgetter("task"), rollouts.replayed))
    has_signal, is_rescued, sizes, in_even = list[bool](), list[bool](), list[float](), list[float]()
    has_shaped = list[bool]()
    for task, members in groups.items():
        size, own_scores, results = list[float](), set[float](), set[tuple[float, float]]()
        is_aided, is_any_shaped = task in joined, False
        for n in members:
            size += map(abs, credit[n])
            is_any_shaped = is_any_shaped or shaped[n]
            # Sampled in this update, with the rewards it got, only to give the group different scores.
            is_aided = is_aided or shaped[n] or chosen[n].origin is not Origin.FRESH
            results.add((scores[n], returns[n]))
            if not chosen[n].off_policy:  # a success with a hint is there because the other scores were equal
                own_scores.add(scores[n])
        sizes.append(sum(size))
        has_shaped.append(is_any_shaped)
        has_signal.append(any(size))
        is_rescued.append(has_signal[-1] and len(own_scores) == 1 and is_aided)
        # If all members have the same score and return, neither says anything.
        if len(results) == 1 and not is_aided:
            in_even.append(sizes[-1])
    metrics = {"advantage/groups_with_signal": _mean(has_signal), "advantage/groups_rescued": _mean(is_rescued)}
    metrics["advantage/zero_variance_groups"] = sum(in_even) / sum(sizes) if any(sizes) else 0.0
    if rollouts.rejected_fraction is not None:
        metrics["rollout/filtered_out"] = rollouts.rejected_fraction
    if any(has_shaped):
        metrics["shaping/groups"] = _mean(has_shaped)
    if rollouts.replayed or rollouts.left_out:
        metrics["replay/rollouts"] = float(len(rollouts.replayed))
        metrics["replay/left_out"] = float(rollouts.left_out)
    if rollouts.replayed:
        newest = max((max(trajectory.versions, default=0) for trajectory in chosen), default=0)
        metrics["replay/staleness"] = _mean([newest - replayed.past.version for replayed in rollouts.replayed])
        metrics["replay/log_ratio"] = _mean([replayed.log_ratio or 0.0 for replayed in rollouts.replayed])
    hinted = [
        trajectory
        for trajectory in chosen
        if trajectory.origin is Origin.REFLECTED
        or (
            trajectory.origin
            is Origin.HINTED  # unless it is the copy of a success without its hint: not sampled itself
            and not (trajectory.parent or "").startswith(f"{trajectory.task.id}{MARK}")
        )
    ]
    if hinted:
        metrics["hint/groups"] = float(len({trajectory.task.id for trajectory in hinted}))
        metrics["hint/success"] = _mean([score_of(trajectory) for trajectory in hinted])
    return metrics


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def compute_rollout_metrics(played: Sequence[Trajectory], survivors: Sequence[Trajectory]) -> dict[str, float]:
    """Statistics of an update's rollouts, over the survivors, of which there is at least one."""
    steps, returns, successes, groups = list[Step](), list[float](), list[float | None](), dict[str, list[float]]()
    num_faults = num_truncated = num_even = total_steps = total_tokens = 0
    for trajectory in played:
        num_faults += trajectory.stop in FAULTS or not trajectory.steps
        total_steps += len(trajectory.steps)
        total_tokens += sum(map(len, map(attrgetter("response_ids"), trajectory.steps)))
    for trajectory in survivors:
        earned = sum(map(attrgetter("reward"), trajectory.steps))
        steps += trajectory.steps
        returns.append(earned)
        successes.append(trajectory.scores.get("success"))
        num_truncated += trajectory.stop is StopReason.TRUNCATED
        score = earned if trajectory.outcome is None else trajectory.outcome
        groups.setdefault(trajectory.task.id, []).append(score)
    spreads: list[float] = []
    for scores in groups.values():
        num_even += len(set(scores)) == 1
        if len(scores) > 1:
            spreads.append(float(np.std(scores)))
    metrics = {
        "rollout/return": _mean(returns),
        "rollout/steps": len(steps) / len(survivors),
        "rollout/faults": float(num_faults),
        "rollout/truncated": num_truncated / len(survivors),
        "rollout/group_size": len(survivors) / len(groups),
        "rollout/zero_variance": num_even / len(groups),
        "rollout/response_tokens": _mean(list(map(len, map(attrgetter("response_ids"), steps)))),
        "rollout/cut_off": _mean(list(map(attrgetter("cut"), steps))),
        "rollout/total_steps": float(total_steps),
        "rollout/total_tokens": float(total_tokens),
    }
    optional: dict[str, Iterable[float | None]] = {
        "rollout/success": successes,
        "rollout/well_formed": map(attrgetter("well_formed"), steps),
        "rollout/accepted": map(attrgetter("accepted"), steps),
        "rollout/valid": list_valid(steps),
        "rollout/return_spread": spreads,
        "rollout/entropy": chain.from_iterable(map(attrgetter("entropy"), steps)),
    }
    for name, values in optional.items():
        if known := [value for value in values if value is not None]:  # a missing value is not 0
            metrics[name] = _mean(known)
    return metrics


def compute_speed_metrics(
    sampled: int, totals: Totals, seconds: Mapping[str, float], waiting: EnvTiming, played_in: float | None = None
) -> dict[str, float]:
    """Sampled and trained tokens per second, and environment steps per second.

    `played_in` are the seconds of sampling, if the rollouts were sampled ahead.
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
    """Staleness of the tokens in policy versions before `version`; empty if no engine recorded versions."""
    ages, tokens = list[int](), list[int]()
    for trajectory in chosen:
        if len(trajectory.versions) == 1:
            ages.append(version - trajectory.versions[0])
            tokens.append(sum(map(len, map(attrgetter("response_ids"), trajectory.steps))))
        else:
            for step in trajectory.steps:
                for sampled_by, num in step.versions:
                    ages.append(version - sampled_by)
                    tokens.append(num)
    if not sum(tokens):
        return {}
    mean = sum(age * num for age, num in zip(ages, tokens, strict=True)) / sum(tokens)
    return {"rollout/staleness": mean, "rollout/max_staleness": float(max(ages))}


def compute_credit_metrics(batch: CreditedBatch) -> dict[str, float]:
    """Metrics of the advantages of the steps that were sampled for this update; empty if there are none."""
    end = sum([len(trajectory.steps) for trajectory in batch.trajectories[: batch.num_fresh]])
    if not end:
        return {}
    compared = batch.compared[:end]
    metrics = {
        "advantage/compared": float(compared.mean()),
        "advantage/size": float(np.abs(batch.values[:end]).mean()),
        "advantage/kept": float(batch.keep[:end].mean()),
    }
    if batch.own_rollout_only is not None and compared.any():
        metrics["advantage/own_rollout_only"] = float(batch.own_rollout_only[:end].sum() / compared.sum())
    return metrics
