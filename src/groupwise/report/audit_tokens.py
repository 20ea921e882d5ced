"""Advantages of tokens under several methods. Without token credit, a token has the advantage of its step.

Axes: R methods, S steps, K sampled tokens.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from groupwise.data.credit import Credit
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import KEYS, TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.system.errors import ConfigError, RecordError

ROUNDING = 1e-12
"""A smaller fraction of a sum of squares is a rounding error."""


@dataclass(frozen=True, kw_only=True)
class TokenColumn:
    """The advantages that one method gives the file's sampled tokens."""

    name: str
    has_own_credit: bool
    """Whether tokens have their own advantages, not those of their step."""
    tokens: int
    trained_tokens: int
    silent_tokens: int
    """Trained tokens with an advantage of exactly 0."""
    mean_size: float
    """Mean absolute advantage of the trained tokens."""
    largest: float
    inside_share: float | None
    """Fraction of the variance of their advantages that is inside steps; None if all are equal."""
    flips: dict[str, int]
    """By other method: tokens that both train, with opposite signs."""
    both_signed: dict[str, int]
    """By other method: tokens that both train, with two nonzero advantages."""
    correlation: dict[str, float | None]
    """By other method: correlation over the tokens that both train; None if one is constant."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ValuedTokens:
    """The advantages of a table's tokens (K) under one method, and which tokens train (K)."""

    values: FloatArray
    trains: BoolArray


def _value_tokens(
    name: str, algorithm: Algorithm, table: StepTable, credit: Credit, tokens: TokenTable
) -> ValuedTokens:
    seen, earned = algorithm.estimator_table(table), credit.by_step()
    kept = np.zeros(len(table), dtype=np.bool_)
    kept[table.step_of_row] = algorithm.keep(table, credit)
    if algorithm.token_credit is None:
        return ValuedTokens(values=earned.values[tokens.row], trains=kept[tokens.row])
    _refuse_missing_columns(name, algorithm, table, tokens)
    try:
        given = algorithm.token_credit(seen, earned, tokens)
    except RecordError as error:
        raise RecordError(f"method {name!r}: {error}") from None
    return ValuedTokens(values=given.values, trains=given.trains & kept[tokens.row])


def _refuse_missing_columns(name: str, algorithm: Algorithm, table: StepTable, tokens: TokenTable) -> None:
    parts = [part for part in algorithm.parts() if part.slot == "token_credit"]
    # A chunk may have steps without tokens. Ids are missing only if the file counts tokens, or has no counts.
    has_no_ids = not len(tokens) and bool("tokens" not in table.extra or table.tokens.any())
    has_no_entropy = has_no_ids or (len(tokens) > 0 and bool(np.isnan(tokens.entropy).all()))
    missing = ["response_ids"] if has_no_ids else []
    missing += sorted(
        {info_key for part in parts for info_key in getattr(part, "reads", frozenset()) - table.extra.keys()}
    )
    if has_no_entropy and any(getattr(part, "needs_entropy", False) for part in parts):
        missing.append(KEYS["entropy"])
    if missing:
        raise ConfigError(
            f"method {name!r} needs {', '.join(missing)}, which the file does not have; leave the method out, or "
            "audit a recording that has them (docs/reference/rollouts.md)"
        )


class TokenTally:
    """Sums the advantages of tokens chunk by chunk, and keeps the tokens whose advantage changes most."""

    def __init__(self, algorithms: Mapping[str, Algorithm], num_movers: int) -> None:
        num = len(algorithms)
        self._algorithms, self._num_movers = algorithms, num_movers
        self.movers: list[TokenMover] = []
        """From the first method to the last, among tokens that both train; largest change first."""
        self._tokens = 0
        self._silent, self._largest, self._inside = np.zeros(num, dtype=np.int64), np.zeros(num), np.zeros(num)
        self._size = np.zeros(num)
        # Over the tokens that both of two methods train.
        self._counts, self._sums, self._squares, self._products, self._signed, self._agreement = (
            np.zeros((num, num)) for _ in range(6)
        )

    def add(self, table: StepTable, credits: Mapping[str, Credit], tokens: TokenTable) -> None:
        valued = [_value_tokens(name, own, table, credits[name], tokens) for name, own in self._algorithms.items()]
        self._add_movers(table, tokens, valued[0], valued[-1])
        trains_RK = np.stack([given.trains for given in valued])
        values_RK = np.stack([np.where(given.trains, given.values, 0.0) for given in valued])
        mask_RK, signs_RK = trains_RK.astype(np.float64), np.sign(values_RK)
        self._tokens += len(tokens)
        self._silent += (trains_RK & (values_RK == 0)).sum(axis=1)
        self._size += np.abs(values_RK).sum(axis=1)
        self._largest = np.maximum(self._largest, np.abs(values_RK).max(axis=1, initial=0.0))
        self._inside += [_sum_squares_inside(tokens, given) for given in valued]
        self._counts += mask_RK @ mask_RK.T
        self._sums += values_RK @ mask_RK.T
        self._squares += values_RK**2 @ mask_RK.T
        self._products += values_RK @ values_RK.T
        self._signed += np.abs(signs_RK) @ np.abs(signs_RK).T
        self._agreement += signs_RK @ signs_RK.T

    def _add_movers(self, table: StepTable, tokens: TokenTable, before: ValuedTokens, after: ValuedTokens) -> None:
        size = np.abs(np.where(before.trains & after.trains, after.values - before.values, 0.0))
        moved = np.flatnonzero(size)
        if len(moved) > self._num_movers:
            edge = np.partition(size[moved], -self._num_movers)[-self._num_movers]
            moved = moved[size[moved] >= edge]  # ties at the edge stay in
        movers = self.movers + [
            _make_mover(table, tokens, token, float(before.values[token]), float(after.values[token]))
            for token in moved.tolist()
        ]
        self.movers = heapq.nsmallest(self._num_movers, movers, key=lambda mover: mover.rank)

    def result(self) -> list[TokenColumn]:
        flips = (self._signed - self._agreement) / 2
        columns = []
        for i, (name, algorithm) in enumerate(self._algorithms.items()):
            others = [(j, other) for j, other in enumerate(self._algorithms) if j != i]
            spread = self._spread(i, i)
            columns.append(
                TokenColumn(
                    name=name,
                    has_own_credit=algorithm.token_credit is not None,
                    tokens=self._tokens,
                    trained_tokens=int(self._counts[i, i]),
                    silent_tokens=int(self._silent[i]),
                    mean_size=float(self._size[i] / max(self._counts[i, i], 1.0)),
                    largest=float(self._largest[i]),
                    inside_share=min(float(self._inside[i]) / spread, 1.0) if spread else None,
                    flips={other: int(flips[i, j]) for j, other in others},
                    both_signed={other: int(self._signed[i, j]) for j, other in others},
                    correlation={other: self._correlate(i, j) for j, other in others},
                )
            )
        return columns

    def _spread(self, i: int, j: int) -> float:
        """Sum of squares about the mean of method i, over the tokens that i and j train; 0 for rounding errors."""
        square = float(self._squares[i, j])
        spread = square - float(self._sums[i, j]) ** 2 / max(float(self._counts[i, j]), 1.0)
        return spread if spread > ROUNDING * square else 0.0

    def _correlate(self, i: int, j: int) -> float | None:
        scale = (self._spread(i, j) * self._spread(j, i)) ** 0.5
        product = self._products[i, j] - self._sums[i, j] * self._sums[j, i] / max(self._counts[i, j], 1.0)
        return float(product) / scale if scale else None


def _sum_squares_inside(tokens: TokenTable, given: ValuedTokens) -> float:
    """Sum of squares of the trained tokens' advantages, about the mean of their step."""
    step, values = tokens.row[given.trains], given.values[given.trains]
    if not len(step):
        return 0.0
    num = np.bincount(step)
    first = np.zeros(len(num))
    first[step[::-1]] = values[::-1]  # relative to a step's first token: equal values give exactly 0
    distance = values - first[step]
    mean = np.bincount(step, weights=distance) / np.maximum(num, 1)
    return float(np.sum((distance - mean[step]) ** 2))


@dataclass(frozen=True, kw_only=True)
class TokenMover:
    """A token whose advantage changes much between the first and the last method."""

    task: str | int
    rollout: str | int
    step: int
    position: int
    """Its position in the response, including forced tokens."""
    token: int
    before: float
    after: float

    @property
    def rank(self) -> tuple[float, str, str, int, int]:
        """Orders movers: the largest change first, then by name."""
        return -abs(self.after - self.before), str(self.task), str(self.rollout), self.step, self.position


def _make_mover(table: StepTable, tokens: TokenTable, token: int, before: float, after: float) -> TokenMover:
    step = int(tokens.row[token])
    return TokenMover(
        task=table.task_ids[table.task[step]],
        rollout=table.rollout_ids[table.rollout[step]],
        step=int(table.step[step]),
        position=int(tokens.position[token]) + tokens.num_forced(step),
        token=int(tokens.token[token]),
        before=before,
        after=after,
    )
