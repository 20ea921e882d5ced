"""The metrics of an update, all together (of its attempts, credit, learning and speed), and the update as a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from groupwise.core.journal.journal import Update
from groupwise.core.totals import Totals
from groupwise.training.attempts.collect import UpdateAttempts
from groupwise.training.attempts.pending import write_pending
from groupwise.training.loss_context import NUM_PAIRS
from groupwise.training.metrics.penalties import credit_rests_on_penalties
from groupwise.training.metrics.rescue import compute_rescue_metrics
from groupwise.training.metrics.rollout import compute_age_metrics, compute_credit_metrics, compute_rollout_metrics
from groupwise.training.metrics.speed import compute_speed_metrics
from groupwise.training.metrics.table import check_metrics
from groupwise.training.run_config import RunConfig
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
    """Every metric of an update by name, checked against the table of metrics.

    Args:
        config: the run's settings, with the algorithm that gave the credit.
        attempts: the attempts of the update.
        batch: those that take part, with their credit.
        totals: what was counted of the samples.
        learned: what the learner measured; nothing where nothing trained.
        of_engine: how far engine and learner differ after the hand-over of weights, and what the engine counted.
        seconds: of each stage that is over.
    """
    algorithm = config.algorithm
    metrics = compute_rollout_metrics(attempts.played, attempts.survivors)
    metrics |= {**of_engine, "learner/tokens": float(totals.tokens)}
    is_penalised = credit_rests_on_penalties(algorithm, batch)
    metrics["credit/penalties_alone"] = float(is_penalised)
    metrics |= compute_credit_metrics(*batch.for_fresh()) | compute_rescue_metrics(attempts, batch)
    metrics |= compute_speed_metrics(attempts.played, totals, seconds, attempts.waiting, attempts.played_in)
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
