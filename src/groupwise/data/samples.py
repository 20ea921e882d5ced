"""Samples (training sequences: a prompt and the sampled response), pairs of rollouts, and the totals of an update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from groupwise.data.column_checks import check_lengths, to_integers
from groupwise.data.segments import IntArray, Segments, pair_labels
from groupwise.system.errors import RecordError

if TYPE_CHECKING:
    from groupwise.data.step_table import StepTable

Values = float | Sequence[float]
"""For one sample: one number for all its sampled tokens, or one per token."""


class ValueTargets(NamedTuple):
    """What a critic said of a sample, and what it should have said.

    One number each per sampled token, or a single one for the state in which the step begins.
    """

    values: tuple[float, ...]
    """The values that the critic gave before the update."""
    returns: tuple[float, ...]
    """The returns that it learns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One training sequence with the advantages of its sampled tokens.

    Worked example: step 1 of rollout 4, prompt (7, 8, 9), sampled (5, 2), advantage 0.5:

        Sample(prompt_ids=(7, 8, 9), response_ids=(5, 2), advantage=0.5, logp_behaviour=(-0.1, -2.3),
               trajectory=4, step=1, group=0)

    trains on two tokens with advantage 0.5: on 5, predicted from 9, and on 2, predicted from 5. A sample without
    sampled tokens, or with `trains` off, is in no layout and no total. With `trained=(False, True)` it trains only on
    token 2; token 5 is only read.
    """

    prompt_ids: tuple[int, ...]
    """Token ids the engine was given; at least one, because the last one predicts the first sampled token."""
    response_ids: tuple[int, ...]
    """Token ids the engine sampled; only these train."""
    advantage: float | tuple[float, ...]
    """Advantage of the whole response, or one per sampled token."""
    logp_behaviour: tuple[float, ...] = ()
    """Log-probability of each sampled token when it was sampled; empty = not recorded."""
    entropy: tuple[float, ...] = ()
    """Entropy of the sampling distribution at each sampled token; empty = not recorded."""
    trajectory: int
    """Number of its trajectory within the update."""
    step: int
    """Index of its step within the trajectory."""
    group: int
    """Number of its group within the update."""
    trains: bool = True
    """Whether it trains; off = it was only used in comparisons."""
    trained: tuple[bool, ...] | None = None
    """Which of the sampled tokens train; None = all."""
    off_policy: bool = False
    """Whether it was sampled off-policy; then its ratio divides by `logp_behaviour`."""
    spans: tuple[int, ...] | None = None
    """Span of the response of each sampled token, for losses with one ratio per span; None = not known."""
    columns: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Numbers for the loss by name, the same for all its tokens; the loss declares the names."""
    channels: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict, hash=False)
    """Further advantages for the loss by name: one for the whole response, or one per sampled token."""
    targets: ValueTargets | None = None
    """What a critic learns from it; None = there is no critic."""

    @property
    def name(self) -> str:
        return f"sample of trajectory {self.trajectory}, step {self.step}"

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.prompt_ids + self.response_ids

    @property
    def num_trained(self) -> int:
        if not self.trains:
            return 0
        return len(self.response_ids) if self.trained is None else sum(self.trained)


_ONE_PER_TOKEN = {
    "logp_behaviour": "record one per token, or none",
    "entropy": "record one per token, or none",
    "advantage": "give one number, or one per token",
    "trained": "give one boolean per token (True = it trains), or leave it out",
    "spans": "give the span of each token, or leave it out",
}
"""Fields with one entry per sampled token, and the advice if their length is wrong."""
_MAY_BE_EMPTY = ("logp_behaviour", "entropy")


def find_training(samples: Sequence[Sample]) -> list[int]:
    """Positions of the samples with a token that trains."""
    return [
        number
        for number, sample in enumerate(samples)
        if sample.trains and (any(sample.trained) if sample.trained is not None else sample.response_ids)
    ]


def find_longest(samples: Sequence[Sample]) -> int:
    """Tokens of the longest sample; 1 if there is none."""
    return max([len(sample.prompt_ids) + len(sample.response_ids) for sample in samples], default=1)


def list_computed_responses(samples: Sequence[Sample]) -> list[tuple[int, ...]]:
    """Each response up to its last token that trains; later tokens are never computed."""
    return [
        sample.response_ids
        if sample.trained is None
        else sample.response_ids[: len(sample.trained) - sample.trained[::-1].index(True) if any(sample.trained) else 0]
        for sample in samples
    ]


def keep_trained(samples: Sequence[Sample], values: Sequence[Values]) -> list[Values]:
    """Of the values per sampled token, those of the tokens that train; a single value per sample is kept."""
    return [
        value if sample.trained is None or not isinstance(value, Sequence) else tuple(compress(value, sample.trained))
        for sample, value in zip(samples, values, strict=True)
    ]


# Totals: the counts of an update over all its micro-batches. Losses divide by them.
#
# Axis: N samples.


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The denominators of one update, over all micro-batches and ranks.

    A sample, step, trajectory or group counts if at least one of its tokens trains. A fully masked sample (dropped by
    a filter, or padding of the batch) is in no denominator.

    Worked example: two trajectories of one group. The first has steps of 2 and 4 tokens; the second has a step of 3
    tokens and one that a filter dropped. A sample may hold at most 8 tokens.

    >>> totals = Totals.count(
    ...     tokens=[2, 4, 3, 0], trajectory=[0, 0, 1, 1], step=[0, 1, 0, 1], group=[0, 0, 0, 0], max_tokens=8
    ... )
    >>> totals.tokens, totals.samples, totals.steps, totals.trajectories, totals.groups
    (9, 3, 3, 2, 1)
    >>> totals.trajectory_tokens, totals.trajectory_steps
    ((6, 3), (2, 1))
    """

    tokens: int
    """Tokens that train."""
    samples: int
    """Samples (training sequences) with a token that trains."""
    steps: int
    """Steps with a token that trains; a step of several samples counts once."""
    trajectories: int
    """Trajectories with a token that trains."""
    groups: int
    """Groups of rollouts with a token that trains."""
    max_tokens: int
    """The most tokens a sample may have. This is a setting, not the padded width, which differs between batches."""
    trajectory_tokens: tuple[int, ...] = ()
    """Tokens that train per trajectory, by its number in the update."""
    trajectory_steps: tuple[int, ...] = ()
    """Steps with a token that trains per trajectory, by its number in the update."""
    pair_members: tuple[Pair, ...] = ()
    """The pairs of trajectories that a loss compares; both members of each have a token that trains."""

    @property
    def pairs(self) -> int:
        return len(self.pair_members)

    @property
    def pair_weight(self) -> float:
        return math.fsum(pair.weight for pair in self.pair_members)

    @classmethod
    def count(
        cls,
        *,
        tokens: Sequence[int] | IntArray,
        trajectory: Sequence[int] | IntArray,
        step: Sequence[int] | IntArray,
        group: Sequence[int] | IntArray,
        max_tokens: int,
        pairs: Sequence[Pair] = (),
    ) -> Totals:
        """Count an update from columns with one entry per sample (N). Of the pairs, those with two trained members."""
        columns: dict[str, IntArray] = {}
        for name, column in (("tokens", tokens), ("trajectory", trajectory), ("step", step), ("group", group)):
            columns[name] = to_integers(name, np.asarray(column))
        check_lengths(columns)
        tokens_N, trajectory_N, step_N, group_N = columns.values()
        trains = tokens_N > 0
        num = int(trajectory_N.max()) + 1 if len(trajectory_N) else 0
        steps = Segments.of(pair_labels(trajectory_N[trains], step_N[trains]))
        tokens_of = np.bincount(trajectory_N, weights=tokens_N, minlength=num).astype(np.int64)
        steps_of = np.bincount(trajectory_N[trains][steps.first], minlength=num)
        trained_pairs: tuple[Pair, ...] = ()
        if pairs:  # a member is a step of a rollout, or with step None a whole rollout, of which one step must train
            trajectories, members = trajectory_N[trains].tolist(), set[tuple[int, int | None]]()
            members.update(zip(trajectories, step_N[trains].tolist(), strict=True), zip(trajectories, repeat(None)))
            trained_pairs = tuple(pair for pair in pairs if members.issuperset(pair.members))
        return cls(
            tokens=int(tokens_N.sum()),
            samples=int(trains.sum()),
            steps=len(steps),
            trajectories=int((tokens_of > 0).sum()),
            groups=len(np.unique(group_N[trains])),
            max_tokens=max_tokens,
            trajectory_tokens=tuple(tokens_of.tolist()),
            trajectory_steps=tuple(steps_of.tolist()),
            pair_members=trained_pairs,
        )


# Pairs: which of two rollouts of a task, or of two steps in one state, did better.


class Pair(NamedTuple):
    """Two rollouts of a group, or one step of each, that a loss compares.

    A pairing numbers rollouts as the step table does; in `Totals` they are numbered as the update's trajectories.
    """

    winner: int
    """Number of the better rollout."""
    loser: int
    """Number of the worse rollout."""
    weight: float = 1.0
    """Weight of the pair; losses divide by the sum of all weights."""
    gap: float = 0.0
    """How much better the winner is, in units of the number that was compared."""
    winner_step: int | None = None
    """Index of the winner's step; None = the whole rollout."""
    loser_step: int | None = None
    """Index of the loser's step; None = the whole rollout."""

    @property
    def members(self) -> tuple[tuple[int, int | None], tuple[int, int | None]]:
        """Rollout and step of the winner, then of the loser."""
        return (self.winner, self.winner_step), (self.loser, self.loser_step)


@runtime_checkable
class PairReasons(Protocol):
    """A pairing that can say why two are a pair. Reports use it; else they show the two returns."""

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        """Why the two are a pair, with the numbers that were compared."""


def compare_returns(table: StepTable, pair: Pair) -> str:
    winner, loser = (table.episode_return[table.rollouts.first[number]] for number in (pair.winner, pair.loser))
    return f"return {winner:.6g} against {loser:.6g}"


def differ(value: float, other: float) -> bool:
    """Whether two returns differ by more than rounding; sums in another order differ in the last digit."""
    return not math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)


# A request to score text: a prompt with its response, and the weights that score it.

PromptAndResponse = tuple[Sequence[int], Sequence[int]]
"""Ids of a prompt, and of its response."""
PolicyRole = Literal["current", "reference"]
"""Which weights score: the current ones, which sampled the update's rollouts, or those at the start of the run."""


def count_totals(samples: Sequence[Sample], *, max_tokens: int, pairs: Sequence[Pair] = ()) -> Totals:
    """Check and count the samples of an update once, before any split into micro-batches."""
    tokens, trajectory, step, group = list[int](), list[int](), list[int](), list[int]()
    for sample in samples:
        if not sample.prompt_ids:
            raise RecordError(
                f"{sample.name}: the prompt is empty, so nothing predicts the first sampled token; begin it with a "
                "token such as the tokenizer's beginning-of-sequence token"
            )
        num = len(sample.response_ids)
        for name, advice in _ONE_PER_TOKEN.items():
            values = getattr(sample, name)
            if isinstance(values, tuple) and len(values) != num and (values or name not in _MAY_BE_EMPTY):
                raise RecordError(f"{sample.name}: {name} has {len(values)} entries for {num} sampled tokens; {advice}")
        for name, advantage in sample.channels.items():
            if isinstance(advantage, tuple) and len(advantage) != num:
                raise RecordError(
                    f"{sample.name}: channel {name!r} has {len(advantage)} entries for {num} sampled tokens; "
                    f"{_ONE_PER_TOKEN['advantage']}"
                )
        tokens.append(sample.trains * (num if sample.trained is None else sum(sample.trained)))
        trajectory.append(sample.trajectory)
        step.append(sample.step)
        group.append(sample.group)
    return Totals.count(
        tokens=tokens, trajectory=trajectory, step=step, group=group, max_tokens=max_tokens, pairs=pairs
    )
