from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from groupwise.credit import NumberState, read_remembered
from groupwise.data.credit import Credit, TokenCredit, TokenTrace
from groupwise.data.records import Task
from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Count, ObservedUpdate, Part, PositiveShare

PROGRESS = "down_sampling_progress"
"""The column of the step table with the fraction of the updates that are over."""


@method
def d3s(
    *,
    first_samples: PositiveShare = 0.25,
    last_samples: PositiveShare = 1.0,
    first_tokens: PositiveShare = 0.2,
    last_tokens: PositiveShare = 1.0,
    updates: Count = 100,
) -> Algorithm:
    """D3S (2025, arXiv:2509.22115, from notes): GRPO on varied answers and their tokens with most advantage times
    entropy.

    N = share of the answers with the largest Var(A),   K = share of their tokens;   (1 - p) * first + p * last

    Choices: those of the part `dual_down_sampling`; the fractions are ours, because the paper's were not found.
    Advantages are GRPO's over all rollouts and are not compared again. Clip 0.2, mean over the remaining tokens; no KL.
    """
    return Algorithm(
        advantage=grpo().advantage,
        token_credit=DualDownSampling(
            first_samples=first_samples,
            last_samples=last_samples,
            first_tokens=first_tokens,
            last_tokens=last_tokens,
            updates=updates,
        ),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


class DualDownSampling(Part, slot="token_credit"):
    """Train on the samples whose advantages vary most, and there on the tokens with most advantage times entropy.

        samples: the N of the batch with the largest variance of A;   tokens: the K with the largest |A| * H
        N = share of samples, K = share of tokens:   (1 - p) * first + p * last,   p = updates so far / updates

    Source: D3S (arXiv:2509.22115), from notes; its N and K were not found. **Choices.** Fractions from 0.25 to 1 of the
    samples and from 0.2 to 1 of the tokens are ours; counts are rounded up. A sample is the response of a step;
    filtered steps are not candidates. The largest variance is that of the k largest and N - k smallest for some k,
    which is exact (ddof 0). Equal samples are taken in the table's order; of equal variances the one with fewest large
    values is taken. Advantages do not change. Tokens that are left out leave every denominator. Entropies are those
    that the engine reported. `updates` counts from the run's start; without remembered columns, a table is at the
    start.
    """

    mixes_tasks: ClassVar[bool] = True
    needs_entropy: ClassVar[bool] = True
    first_samples: PositiveShare = 0.25
    """Fraction of the samples that train at the beginning."""
    last_samples: PositiveShare = 1.0
    """Fraction of the samples that train at the end."""
    first_tokens: PositiveShare = 0.2
    """Fraction of the chosen samples' tokens that train at the beginning."""
    last_tokens: PositiveShare = 1.0
    """Fraction of the chosen samples' tokens that train at the end."""
    updates: Count = 100
    """Updates after which the fractions reach their last values."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        values, progress = credit.values[tokens.row], read_remembered(table, PROGRESS, 0.0)
        _, chosen = self._choose_samples(table, credit, tokens)
        of_chosen = np.flatnonzero(np.isin(tokens.row, chosen))
        trains: BoolArray = np.zeros(len(tokens), dtype=np.bool_)
        key = np.abs(values[of_chosen]) * tokens.column("entropy", table)[of_chosen]
        num_tokens = _count(len(of_chosen), self.first_tokens, self.last_tokens, progress)
        trains[of_chosen[np.argsort(-key, kind="stable")[:num_tokens]]] = True
        return TokenCredit(values=values, trains=trains, trace=TokenTrace(weight=np.ones(len(tokens)), part=self))

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        candidates, chosen = self._choose_samples(table, credit, tokens)
        step = tokens.row[token]
        if step not in chosen:
            return f"its response is none of the {len(chosen)} of {len(candidates)} whose credit varies most"
        num = int(np.isin(tokens.row, chosen).sum())
        kept = _count(num, self.first_tokens, self.last_tokens, read_remembered(table, PROGRESS, 0.0))
        size = abs(float(credit.values[step])) * float(tokens.entropy[token])
        return f"its |credit| x entropy is {size:.6g}, not among the {kept} largest of {num} tokens"

    def start(self, *, seed: int) -> DownSamplingProgress:
        return DownSamplingProgress(self.updates)

    def _choose_samples(self, table: StepTable, credit: Credit, tokens: TokenTable) -> tuple[IntArray, IntArray]:
        candidates = np.flatnonzero(table.trains & (np.bincount(tokens.row, minlength=len(table)) > 0))
        num = _count(len(candidates), self.first_samples, self.last_samples, read_remembered(table, PROGRESS, 0.0))
        return candidates, candidates[choose_max_variance(credit.values[candidates], num)]


class DownSamplingProgress(NumberState):
    """How many updates are over."""

    def __init__(self, updates: int) -> None:
        super().__init__(PROGRESS, 0, key="seen")
        self._updates = updates

    def columns(self, tasks: Sequence[Task]) -> dict[str, FloatArray]:
        return {PROGRESS: np.full(len(tasks), min(self._value / self._updates, 1.0))}

    def observe(self, update: ObservedUpdate) -> None:
        self._value += 1


def choose_max_variance(values: FloatArray, num: int) -> IntArray:
    """Positions of the `num` values (C) with the largest variance among all such choices, in ascending order.

    >>> choose_max_variance(np.array([0.0, 3.0, 1.0, -2.0]), 2).tolist()
    [1, 3]
    """
    order = np.argsort(-values, kind="stable")  # the largest first
    centred = values[order] - (values.mean() if len(values) else 0.0)
    if num >= len(values):
        return np.sort(order)
    sums, squares = (np.concatenate([[0.0], np.cumsum(column)]) for column in (centred, centred**2))
    large = np.arange(num + 1)
    rest = len(values) - (num - large)
    total = sums[large] + sums[-1] - sums[rest]
    variance = (squares[large] + squares[-1] - squares[rest]) / num - (total / num) ** 2
    best = int(np.argmax(variance))
    return np.sort(np.concatenate([order[:best], order[len(values) - (num - best) :]]))


def _count(num: int, first: float, last: float, progress: float) -> int:
    """A fraction of `num`, interpolated between the first and the last one and rounded up."""
    share = (1.0 - progress) * first + progress * last
    return int(np.ceil(share * num - 1e-9))
