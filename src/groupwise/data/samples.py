"""Samples, one training sequence each: a prompt and the sampled response; pairs of them, and an update's totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from groupwise.data.column_checks import check_lengths, to_integers
from groupwise.data.segments import IntArray, Segments, pair_labels
from groupwise.system.errors import RecordError

if TYPE_CHECKING:
    from groupwise.data.step_table import StepTable

Values = float | Sequence[float]
"""Of a sample: one number for all its sampled tokens, or one for each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One training sequence with the credit of its sampled tokens.

    Worked example: step 1 of attempt 4, prompt (7, 8, 9), sampled (5, 2), credit 0.5:

        Sample(prompt_ids=(7, 8, 9), response_ids=(5, 2), advantage=0.5, logp_behaviour=(-0.1, -2.3),
               trajectory=4, step=1, group=0)

    trains on two tokens: 5, predicted from 9, and 2, predicted from 5; both have advantage 0.5. A sample without
    sampled tokens, or with `trains` off, trains on none: no layout holds it and no total counts it. With
    `trained=(False, True)` it trains on token 2 alone: 5 is still read, and nothing else is made of it.
    """

    prompt_ids: tuple[int, ...]
    """Token ids the engine was given; at least one: the last of them predicts the first sampled token."""
    response_ids: tuple[int, ...]
    """Token ids the engine sampled; only these train."""
    advantage: float | tuple[float, ...]
    """Advantage of the whole response, or of each sampled token."""
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
    """Whether it trains; off = it only took part in comparisons."""
    trained: tuple[bool, ...] | None = None
    """Which of the sampled tokens train, where not all do; None = all."""
    off_policy: bool = False
    """Whether another policy sampled it than the one that learns: its ratio is taken against `logp_behaviour`."""
    spans: tuple[int, ...] | None = None
    """Span of the response that each sampled token belongs to, for losses that take ratios by span; None = not told."""
    columns: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Named numbers for the loss, the same for all its tokens; those that the loss declares."""
    channels: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict, hash=False)
    """Further credit for the loss by name: of the whole response, or of each sampled token."""

    @property
    def name(self) -> str:
        """How messages speak of the sample."""
        return f"sample of trajectory {self.trajectory}, step {self.step}"

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Prompt and response, as the model reads them."""
        return self.prompt_ids + self.response_ids

    @property
    def num_trained(self) -> int:
        """How many of its tokens train."""
        if not self.trains:
            return 0
        return len(self.response_ids) if self.trained is None else sum(self.trained)


_ONE_PER_TOKEN = {
    "logp_behaviour": "record one per token, or none",
    "entropy": "record one per token, or none",
    "advantage": "give one number, or one per token",
    "trained": "say of each token whether it trains, or leave it out",
    "spans": "say of each token to which span it belongs, or leave it out",
}
"""Fields with an entry for each sampled token, and what to do where they have another number."""
_MAY_BE_EMPTY = ("logp_behaviour", "entropy")


def check_samples(samples: Sequence[Sample]) -> None:
    """Refuse samples whose fields do not go together."""
    for sample in samples:
        if not sample.prompt_ids:
            raise RecordError(
                f"{sample.name}: the prompt is empty, so that nothing predicts the first sampled token; "
                "begin it with a token such as the tokenizer's beginning of sequence"
            )
        num = len(sample.response_ids)
        for name, advice in _ONE_PER_TOKEN.items():
            values = getattr(sample, name)
            if isinstance(values, tuple) and len(values) != num and (values or name not in _MAY_BE_EMPTY):
                raise RecordError(f"{sample.name}: {name} has {len(values)} entries for {num} sampled tokens; {advice}")
        for name, credit in sample.channels.items():
            if isinstance(credit, tuple) and len(credit) != num:
                raise RecordError(
                    f"{sample.name}: channel {name!r} has {len(credit)} entries for {num} sampled tokens; "
                    f"{_ONE_PER_TOKEN['advantage']}"
                )


def find_training(samples: Sequence[Sample]) -> list[int]:
    """Numbers of the samples of which a token trains."""
    return [
        number
        for number, sample in enumerate(samples)
        if sample.trains and (any(sample.trained) if sample.trained is not None else sample.response_ids)
    ]


def find_longest(samples: Sequence[Sample]) -> int:
    """Tokens of the longest sample; 1 where there is none."""
    return max([len(sample.prompt_ids) + len(sample.response_ids) for sample in samples], default=1)


def list_computed_responses(samples: Sequence[Sample]) -> list[tuple[int, ...]]:
    """Each response up to its last token that trains: what comes after that is never computed."""
    return [
        sample.response_ids
        if sample.trained is None
        else sample.response_ids[: len(sample.trained) - sample.trained[::-1].index(True) if any(sample.trained) else 0]
        for sample in samples
    ]


def keep_trained(samples: Sequence[Sample], values: Sequence[Values]) -> list[Values]:
    """Of values for each sampled token, by sample, those of the tokens that train; a single value stays as it is."""
    return [
        value if sample.trained is None or not isinstance(value, Sequence) else tuple(compress(value, sample.trained))
        for sample, value in zip(samples, values, strict=True)
    ]


# Totals: what an update holds, counted once over all its micro-batches, and what a loss divides by.
#
# Axis: N samples.


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The denominators of one update, over all micro-batches and ranks.

    Only what trains is counted: a sample, step, trajectory or group counts if at least one of its tokens trains. A
    sample that is masked as a whole (a filter dropped it, or it pads the batch) leaves every denominator.

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
    """Steps with a token that trains; a step that was cut into several samples counts once."""
    trajectories: int
    """Trajectories with a token that trains."""
    groups: int
    """Groups of attempts with a token that trains."""
    max_tokens: int
    """The most tokens a sample may have: a setting, never the padded width, which changes from batch to batch."""
    trajectory_tokens: tuple[int, ...] = ()
    """Tokens that train of each trajectory, by its number in the update."""
    trajectory_steps: tuple[int, ...] = ()
    """Steps with a token that trains of each trajectory, by its number in the update."""
    pair_members: tuple[Pair, ...] = ()
    """The pairs of trajectories that a loss holds against each other; both members of each have a token that trains."""

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return len(self.pair_members)

    @property
    def pair_weight(self) -> float:
        """What the weights of all pairs sum to."""
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
        """Count an update from one entry a sample (N); of pairs, those of which both members train."""
        columns = {"tokens": tokens, "trajectory": trajectory, "step": step, "group": group}
        # An empty list has no type of its own; numpy would make it one of floats.
        columns = {
            name: np.asarray(column, dtype=None if len(column) else np.int64) for name, column in columns.items()
        }
        check_lengths(columns)
        tokens_N, trajectory_N, step_N, group_N = (to_integers(name, column) for name, column in columns.items())
        trains = tokens_N > 0
        num = int(trajectory_N.max()) + 1 if len(trajectory_N) else 0
        steps = Segments.of(pair_labels(trajectory_N[trains], step_N[trains]))
        tokens_of = np.bincount(trajectory_N, weights=tokens_N, minlength=num).astype(np.int64)
        steps_of = np.bincount(trajectory_N[trains][steps.first], minlength=num)
        return cls(
            tokens=int(tokens_N.sum()),
            samples=int(trains.sum()),
            steps=len(steps),
            trajectories=int((tokens_of > 0).sum()),
            groups=len(np.unique(group_N[trains])),
            max_tokens=max_tokens,
            trajectory_tokens=tuple(tokens_of.tolist()),
            trajectory_steps=tuple(steps_of.tolist()),
            pair_members=_keep_trained(pairs, trajectory_N[trains].tolist(), step_N[trains].tolist()),
        )


def _keep_trained(pairs: Sequence[Pair], trajectories: list[int], steps: list[int]) -> tuple[Pair, ...]:
    """The pairs of which both members train; of whole attempts, at least one step."""
    if not pairs:
        return ()
    trained: set[tuple[int, int | None]] = {*zip(trajectories, steps, strict=True), *((n, None) for n in trajectories)}
    return tuple(pair for pair in pairs if trained.issuperset(pair.members))


# Pairs: which of two attempts at a task, or of two steps in one state, did better.


class Pair(NamedTuple):
    """One attempt, or one step of it, that a loss holds against another of its group.

    A pairing numbers attempts as the step table does; in `Totals` they are numbered as the update's trajectories.
    """

    winner: int
    """Number of the better attempt."""
    loser: int
    """Number of the worse attempt."""
    weight: float = 1.0
    """How much the pair counts beside the others; losses divide by the sum of all weights."""
    gap: float = 0.0
    """How much better the winner did, in units of what was compared."""
    winner_step: int | None = None
    """Index of the winner's step that is meant; None = the whole attempt."""
    loser_step: int | None = None
    """Index of the loser's step that is meant; None = the whole attempt."""

    @property
    def members(self) -> tuple[tuple[int, int | None], tuple[int, int | None]]:
        """Attempt and step of the winner, then of the loser."""
        return (self.winner, self.winner_step), (self.loser, self.loser_step)


@runtime_checkable
class PairReasons(Protocol):
    """A pairing that can say why two are a pair; reports ask it, and tell the two returns where it cannot."""

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        """Why the two are a pair, with the numbers that were compared."""


def compare_returns(table: StepTable, pair: Pair) -> str:
    """The returns of the two attempts, in words."""
    winner, loser = (table.episode_return[table.attempts.first[number]] for number in (pair.winner, pair.loser))
    return f"return {winner:.6g} against {loser:.6g}"


def differ(value: float, other: float) -> bool:
    """Whether two returns differ by more than rounding: rewards summed in another order miss by their last digit."""
    return not math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)


# What a request to score text names: the prompt with the response to it, and whose weights score it.

PromptAndResponse = tuple[Sequence[int], Sequence[int]]
"""Ids of a prompt, and of a response to it."""
PolicyRole = Literal["current", "reference"]
"""Which weights are asked: those of now, which sampled the update's attempts, or those that the run started from."""


def count_totals(samples: Sequence[Sample], *, max_tokens: int, pairs: Sequence[Pair] = ()) -> Totals:
    """Check and count the samples of an update once, before any split into micro-batches."""
    check_samples(samples)
    return Totals.count(
        tokens=[
            sample.trains * (len(sample.response_ids) if sample.trained is None else sum(sample.trained))
            for sample in samples
        ],
        trajectory=[sample.trajectory for sample in samples],
        step=[sample.step for sample in samples],
        group=[sample.group for sample in samples],
        max_tokens=max_tokens,
        pairs=pairs,
    )
