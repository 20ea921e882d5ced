"""The credit of an update's attempts, and the samples that the learner trains on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from groupwise.data.credit import Comparison, Credit, find_own_rollout_only, find_unearned
from groupwise.data.past_attempts import RecalledAttempt
from groupwise.data.records import Step, Trajectory
from groupwise.data.samples import Sample
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.stateful import StateBefore, join_columns
from groupwise.training.loss_context import LossContext, make_loss_context


@dataclass(frozen=True, kw_only=True)
class TokensOfStep:
    """The credit of one step's sampled tokens, and which of them train."""

    values: tuple[float, ...]
    trains: tuple[bool, ...]
    spans: tuple[int, ...] | None = None
    """Span of each token; None = not told."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CreditedBatch:
    """The trajectories of an update with the credit of their steps: first the fresh ones, then the recalled."""

    trajectories: Sequence[Trajectory]
    num_fresh: int
    """How many of them were sampled in this update; the others were recalled."""
    version: int
    """The learner's when credit was given; at lag 0 the one that sampled the fresh ones."""
    states: Sequence[StateBefore] = ()
    values: FloatArray
    """Credit of every step, in the order of the steps."""
    compared: BoolArray
    keep: BoolArray
    """Whether it may train."""
    own_rollout_only: BoolArray | None
    """Whether it was compared, and only with other steps of its own rollout; None if the algorithm does not say."""
    unearned: BoolArray
    """Whether it belongs to a task at which nobody earned anything."""
    context: LossContext = field(default_factory=LossContext)
    logps_now: Mapping[int, Sequence[tuple[float, ...]]] = field(default_factory=dict)
    """By place among the trajectories, the log-probs that the tokens of their steps are measured against, where these
    are not the ones they were sampled with."""
    tokens: Sequence[TokensOfStep] | None = None
    """Credit of the tokens of every step, in the order of the steps; None = each token has that of its step."""

    def for_fresh(self) -> tuple[FloatArray, BoolArray, BoolArray, BoolArray | None]:
        """Of the steps that were sampled in this update: credit, whether compared, whether it may train, and whether
        it was compared within its own rollout only."""
        end = sum([len(trajectory.steps) for trajectory in self.trajectories[: self.num_fresh]])
        own = None if self.own_rollout_only is None else self.own_rollout_only[:end]
        return self.values[:end], self.compared[:end], self.keep[:end], own

    def by_trajectory(self) -> list[list[float]]:
        """The credit of the steps, a list for each trajectory."""
        ends = np.cumsum([len(trajectory.steps) for trajectory in self.trajectories])
        return [self.values[end - len(t.steps) : end].tolist() for t, end in zip(self.trajectories, ends, strict=True)]


def credit_batch(
    algorithm: Algorithm,
    chosen: Sequence[Trajectory],
    recalled: Sequence[RecalledAttempt] = (),
    *,
    version: int,
    states: Sequence[StateBefore] = (),
) -> CreditedBatch:
    """Give every step credit, and say whether it may train. `version` is the learner's, `states` those of the parts.

    What was recalled is compared with the chosen, unless it keeps the credit that it had.
    """
    # Those that keep their credit come last, whatever order they were recalled in.
    joined = [past.trajectory for past in recalled if past.trajectory and not past.keeps_credit]
    kept = [(past.trajectory, past.credit) for past in recalled if past.trajectory and past.keeps_credit]
    table = join_columns(StepTable.from_trajectories([*chosen, *joined], version=version), states)
    credit, stored = algorithm.credit(table), [value for _, values in kept for value in values]
    keeping_credit, keep = [trajectory for trajectory, _ in kept], algorithm.keep(table, credit)
    in_order = sorted((past for past in recalled if past.trajectory), key=lambda past: past.keeps_credit)
    own, stored_flags = find_own_rollout_only(table, credit.trace), np.zeros(len(stored), dtype=np.bool_)
    return CreditedBatch(
        trajectories=[*chosen, *joined, *keeping_credit],
        num_fresh=len(chosen),
        version=version,
        states=states,
        values=np.append(credit.values, stored),
        compared=np.append(credit.compared, stored_flags),
        own_rollout_only=None if own is None else np.append(own[table.step_of_row], stored_flags),
        keep=np.append(keep, np.ones(len(stored), dtype=np.bool_)),
        logps_now={
            len(chosen) + place: past.logps_now for place, past in enumerate(in_order) if past.ratio == "recomputed"
        },
        context=make_loss_context(algorithm, table, [*chosen, *joined], keep=keep),
        tokens=None
        if algorithm.token_credit is None
        else [
            *credit_tokens(algorithm, table, credit, [*chosen, *joined]),
            *_credit_kept_tokens(algorithm, keeping_credit, stored, version=version, states=states),
        ],
        unearned=np.append(find_unearned(table)[table.step_of_row], stored_flags),
    )


def credit_tokens(
    algorithm: Algorithm, table: StepTable, credit: Credit, trajectories: Sequence[Trajectory]
) -> list[TokensOfStep]:
    """Give the sampled tokens of each step credit, in the order of the trajectories that the table was made of."""
    assert algorithm.token_credit is not None, "without the part, tokens have the credit of their step"
    tokens = TokenTable.from_trajectories(table, trajectories)
    token_credit = algorithm.token_credit(algorithm.estimator_table(table), credit.by_step(), tokens)
    values, trains = token_credit.values.tolist(), token_credit.trains.tolist()
    spans = None if token_credit.span is None else token_credit.span.tolist()
    rows = (tokens.row(number) for number in range(len(table.step_of_row)))
    return [
        TokensOfStep(
            values=tuple(values[row]), trains=tuple(trains[row]), spans=None if spans is None else tuple(spans[row])
        )
        for row in rows
    ]


def _credit_kept_tokens(
    algorithm: Algorithm,
    past: Sequence[Trajectory],
    stored: Sequence[float],
    *,
    version: int,
    states: Sequence[StateBefore],
) -> list[TokensOfStep]:
    """Give credit to the tokens of recalled attempts that keep their steps' credit: a table of these alone."""
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
        signal=table.episode_return,  # so that signal - values is the baseline it was compared with
        label=np.full(len(table), -1, dtype=np.int64),
        baseline=nothing,
        scale=nothing,
        part="the credit that it had when it was sampled",
    )
    return credit_tokens(algorithm, table, Credit.of(table, trace), past)


def make_samples(batch: CreditedBatch) -> list[Sample]:
    """Make a sample of each step: its credit, or that of each token, is the advantage; groups are numbered by task."""
    groups = {name: number for number, name in enumerate(dict.fromkeys(t.task.id for t in batch.trajectories))}
    samples: list[Sample] = []
    values, keep, tokens = batch.values.tolist(), batch.keep.tolist(), batch.tokens
    context, nothing = batch.context, dict[str, float]()  # one for all samples, of which there are thousands
    for number, trajectory in enumerate(batch.trajectories):
        group, off_policy = groups[trajectory.task.id], trajectory.off_policy
        logps_now = batch.logps_now.get(number)
        for place, recorded in enumerate(trajectory.steps):
            step, row = recorded, len(samples)
            if logps_now is not None:
                step = replace(step, logp_behaviour=logps_now[place])
            if step.forced:
                step = move_forced_to_prompt(step)
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
                    columns=context.columns_of(row) if context.columns else nothing,
                    channels=context.channels_of(row) if context.channels else nothing,
                )
            )
    return samples


def move_forced_to_prompt(step: Step) -> Step:
    """Read what was forced on the policy like the prompt: nobody sampled it, so none of it trains."""
    num = step.forced
    return replace(
        step,
        prompt_ids=step.prompt_ids + step.response_ids[:num],
        response_ids=step.response_ids[num:],
        logp_behaviour=step.logp_behaviour[num:],
        entropy=step.entropy[num:],
        forced=0,
        versions=(),  # they count the forced tokens, and no sample says them
    )
