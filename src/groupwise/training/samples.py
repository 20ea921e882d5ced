"""The advantages of an update's rollouts, and the samples that the learner trains on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from groupwise.credit import find_value_targets
from groupwise.data.credit import Comparison, Credit, find_own_rollout_only, find_unearned
from groupwise.data.past_rollouts import ReplayedRollout
from groupwise.data.records import Trajectory
from groupwise.data.samples import Sample, ValueTargets
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.slots import Critic
from groupwise.parts.stateful import StateBefore, join_columns
from groupwise.training.loss_context import LossContext, make_loss_context


@dataclass(frozen=True, kw_only=True)
class TokensOfStep:
    """The advantages of one step's sampled tokens, and which of them train."""

    values: tuple[float, ...]
    trains: tuple[bool, ...]
    spans: tuple[int, ...] | None = None
    """Span of each token; None = no spans."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CreditedBatch:
    """The trajectories of an update with the advantages of their steps: the fresh ones first, then the replayed."""

    trajectories: Sequence[Trajectory]
    num_fresh: int
    """How many of them were sampled for this update; the others were replayed."""
    version: int
    """The learner's version when the advantages were computed; at lag 0 it also sampled the fresh ones."""
    states: Sequence[StateBefore] = ()
    values: FloatArray
    """Advantage of every step, in the order of the steps."""
    compared: BoolArray
    keep: BoolArray
    """Whether the step may train."""
    own_rollout_only: BoolArray | None
    """Whether it was compared only with other steps of its own rollout; None if the algorithm does not say."""
    unearned: BoolArray
    """Whether no rollout of its task got a reward."""
    context: LossContext = field(default_factory=LossContext)
    logps_now: Mapping[int, Sequence[tuple[float, ...]]] = field(default_factory=dict)
    """By place among the trajectories: the log-probs to take ratios against, if not those of the sampling."""
    tokens: Sequence[TokensOfStep] | None = None
    """Advantages of the tokens of every step; None = each token has the advantage of its step."""
    targets: Sequence[ValueTargets] | None = None
    """What the critic learns from every step; None = there is no critic."""

    def by_trajectory(self) -> list[list[float]]:
        values, lists, start = self.values.tolist(), list[list[float]](), 0
        for trajectory in self.trajectories:
            lists.append(values[start : start + len(trajectory.steps)])
            start += len(trajectory.steps)
        return lists


def credit_batch(
    algorithm: Algorithm,
    chosen: Sequence[Trajectory],
    replayed: Sequence[ReplayedRollout] = (),
    *,
    version: int,
    states: Sequence[StateBefore] = (),
) -> CreditedBatch:
    """Give every step an advantage, and say whether it may train.

    Replayed rollouts are compared with the chosen ones, unless they keep the advantages that they had.
    """
    compared, kept, logps_now = [*chosen], list[Trajectory](), dict[int, Sequence[tuple[float, ...]]]()
    stored: list[float] = []
    for past in sorted(replayed, key=attrgetter("keeps_credit")):  # those that keep their advantages come last
        if past.trajectory is None:
            continue
        if past.ratio == "recomputed":
            logps_now[len(compared) + len(kept)] = past.logps_now
        if past.keeps_credit:
            kept.append(past.trajectory)
            stored += past.credit
        else:
            compared.append(past.trajectory)
    table = join_columns(StepTable.from_trajectories(compared, version=version), states)
    credit = algorithm.credit(table)
    keep = algorithm.keep(table, credit)
    own, stored_flags = find_own_rollout_only(table, credit.trace), np.zeros(len(stored), dtype=np.bool_)
    tokens = None
    if algorithm.token_credit is not None:
        tokens = [
            *credit_tokens(algorithm, table, credit, compared),
            *_credit_kept_tokens(algorithm, kept, stored, version=version, states=states),
        ]
    return CreditedBatch(
        trajectories=[*compared, *kept],
        num_fresh=len(chosen),
        version=version,
        states=states,
        values=np.append(credit.values, stored),
        compared=np.append(credit.compared, stored_flags),
        own_rollout_only=None if own is None else np.append(own[table.step_of_row], stored_flags),
        keep=np.append(keep, np.ones(len(stored), dtype=np.bool_)),
        logps_now=logps_now,
        context=make_loss_context(algorithm, table, compared, keep=keep),
        tokens=tokens,
        targets=None if algorithm.critic is None else find_targets(algorithm.critic, table, compared),
        unearned=np.append(find_unearned(table)[table.step_of_row], stored_flags),
    )


def credit_tokens(
    algorithm: Algorithm, table: StepTable, credit: Credit, trajectories: Sequence[Trajectory]
) -> list[TokensOfStep]:
    """Give the sampled tokens of each step advantages, in the order of the trajectories of the table."""
    assert algorithm.token_credit is not None, "without the part, tokens have the advantage of their step"
    tokens = TokenTable.from_trajectories(table, trajectories)
    token_credit = algorithm.token_credit(algorithm.estimator_table(table), credit.by_step(), tokens)
    values, trains = token_credit.values.tolist(), token_credit.trains.tolist()
    spans = None if token_credit.span is None else token_credit.span.tolist()
    return [
        TokensOfStep(
            values=tuple(values[row]), trains=tuple(trains[row]), spans=None if spans is None else tuple(spans[row])
        )
        for row in map(tokens.find_tokens, range(len(table.step_of_row)))
    ]


def find_targets(critic: Critic, table: StepTable, trajectories: Sequence[Trajectory]) -> list[ValueTargets]:
    """What the critic learns from each step, in the order of the trajectories of the table."""
    tokens = TokenTable.from_trajectories(table, trajectories)
    found = find_value_targets(table, tokens, by=critic.by, gamma=critic.gamma, lam=critic.lam)
    values, returns = (column.tolist() for column in found)
    places = (
        [slice(step, step + 1) for step in table.step_of_row.tolist()]
        if critic.by == "step"
        else [tokens.find_tokens(row) for row in range(len(table.step_of_row))]
    )
    return [ValueTargets(values=tuple(values[place]), returns=tuple(returns[place])) for place in places]


def _credit_kept_tokens(
    algorithm: Algorithm,
    past: Sequence[Trajectory],
    stored: Sequence[float],
    *,
    version: int,
    states: Sequence[StateBefore],
) -> list[TokensOfStep]:
    """Give advantages to the tokens of replayed rollouts that keep those of their steps, in a table of their own."""
    if not past:
        return []
    table = join_columns(StepTable.from_trajectories(past, version=version), states)
    by_row = np.asarray(stored, dtype=np.float64)
    values = np.empty_like(by_row)
    values[table.step_of_row] = by_row
    nothing = np.full(len(table), np.nan)
    trace = Comparison(
        values=values,
        compared=np.zeros(len(table), dtype=np.bool_),
        signal=table.episode_return,  # signal - values is the baseline it was compared with
        label=np.full(len(table), -1, dtype=np.int64),
        baseline=nothing,
        scale=nothing,
        part="the advantage that it had when it was sampled",
    )
    return credit_tokens(algorithm, table, Credit.of(table, trace), past)


def make_samples(batch: CreditedBatch) -> list[Sample]:
    """Make one sample per step; groups are numbered by task."""
    samples, groups = list[Sample](), dict[str, int]()
    values, keep, tokens = batch.values.tolist(), batch.keep.tolist(), batch.tokens
    context, nothing = batch.context, dict[str, float]()  # one for all samples, of which there are thousands
    for number, trajectory in enumerate(batch.trajectories):
        group, off_policy = groups.setdefault(trajectory.task.id, len(groups)), trajectory.off_policy
        logps_now = batch.logps_now.get(number)
        for place, recorded in enumerate(trajectory.steps):
            step, row = recorded, len(samples)
            if logps_now is not None:
                step = replace(step, logp_behaviour=logps_now[place])
            if step.forced:
                num = step.forced  # read like the prompt: the policy did not sample these tokens, so none trains
                step = replace(
                    step,
                    prompt_ids=step.prompt_ids + step.response_ids[:num],
                    response_ids=step.response_ids[num:],
                    logp_behaviour=step.logp_behaviour[num:],
                    entropy=step.entropy[num:],
                    forced=0,
                    versions=(),  # they count the forced tokens, and no sample has them
                )
            response_ids = step.response_ids
            own = None if tokens is None else tokens[row]
            samples.append(
                Sample(
                    prompt_ids=step.prompt_ids,
                    response_ids=response_ids,
                    advantage=values[row] if own is None else own.values,
                    logp_behaviour=step.logp_behaviour,
                    entropy=step.entropy,
                    trajectory=number,
                    step=step.index,
                    group=group,
                    trains=keep[row] and bool(response_ids),
                    trained=None if own is None or all(own.trains) else own.trains,
                    off_policy=off_policy,
                    spans=None if own is None else own.spans,
                    targets=None if batch.targets is None else batch.targets[row],
                    columns=_read_row(context.columns, row) if context.columns else nothing,
                    channels=_read_row(context.channels, row) if context.channels else nothing,
                )
            )
    return samples


def _read_row(columns: Mapping[str, FloatArray], row: int) -> dict[str, float]:
    return {name: float(column[row]) for name, column in columns.items()}
