from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.credit import train_all
from groupwise.data.column_checks import to_numbers
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.records import Task, Trajectory
from groupwise.data.segments import FloatArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import Clip, EntropyBonus, Kl, PolicyLoss, TokenMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Count, Draw, Finite, NotNegative, ObservedUpdate, Part, Positive, PositiveShare
from groupwise.rollout.scorers import Tools, read_response_states, sort_by_step


@method
def verl(
    *,
    stride: Count = 40,
    gain: Finite = 2.0,
    kappa: Finite = 2.0,
    new_share: PositiveShare = 0.3,
    weight: Finite = 1.0,
    placement: Literal["all", "last"] = "all",
) -> Algorithm:
    """VERL (2025, arXiv:2509.23808, and code; not the trainer verl): a bonus if hidden states spread more, or faster.

    A' = A + min([Phi]_+, |A| / kappa),   Phi = beta * tanh(u_rank) + (1 - beta) * tanh(u_velocity),   A of GRPO
    beta = sigmoid(gain * u_acceleration),   u = (value - M) / |M|, M a moving average over updates

    Choices: those of the parts `effective_rank` and `rank_bonus`. The bonus is on all tokens (the release puts it on
    the last), and the first update has none. Clip 0.2, mean over tokens, KL 0.001 and entropy bonus 0.001 as in the
    released script; its groups have 4 answers. `stride` is for answers of hundreds of tokens: a short one needs less.
    """
    return Algorithm(
        advantage=grpo().advantage,
        token_credit=RankBonus(weight=weight, gain=gain, kappa=kappa, new_share=new_share, placement=placement),
        scorers=(EffectiveRank(stride=stride),),
        loss=PolicyLoss(
            surrogate=Clip(),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=0.001), EntropyBonus(weight=0.001)),
        ),
    )


RANKS = ("effective_rank", "rank_velocity", "rank_acceleration")
"""Step info that the scorer `effective_rank` writes."""
LEVELS = ("average_effective_rank", "average_rank_velocity", "average_rank_acceleration")
"""Columns of the step table: the moving average of each."""
UNKNOWN = -1.0
"""The average rank before the first update is finished; a rank is never negative."""


class RankLevels:
    """Moving averages over updates: the state of `RankBonus`."""

    def __init__(self, new_share: float) -> None:
        self._new_share = new_share
        self._levels: tuple[float, ...] = (UNKNOWN, 0.0, 0.0)

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        return {name: np.full(len(tasks), level) for name, level in zip(LEVELS, self._levels, strict=True)}

    def observe(self, update: ObservedUpdate) -> None:
        steps = [step for trajectory in update.trajectories for step in trajectory.steps]
        measured = [step.info for step in steps if all(name in step.info for name in RANKS)]
        if not measured:
            return
        means = [math.fsum(info[name] for info in measured) / len(measured) for name in RANKS]
        if self._levels[0] == UNKNOWN:
            self._levels = tuple(means)
        else:
            keep, new = 1.0 - self._new_share, self._new_share
            self._levels = tuple(keep * level + new * mean for level, mean in zip(self._levels, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        return {"levels": list(self._levels)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._levels = tuple(float(level) for level in state["levels"])


EPS = 1e-8


class RankBonus(Part, slot="token_credit"):
    """Increase an answer's advantage if its effective rank, or the rank's velocity, is above a moving average.

        A' = A + min(max(Phi, 0), |A| / kappa),   Phi = weight * (beta * tanh(u_rank) + (1 - beta) * tanh(u_velocity))
        beta = sigmoid(gain * u_acceleration),   u = (value - M) / (|M| + 1e-8), held within +-max_deviation

    So an advantage never changes its sign, and 0 stays 0. M is a moving average over updates of each number's mean over
    the update's steps: M <- (1 - new_share) * M + new_share * mean. The scorer `effective_rank` writes the three
    numbers.

    Source: VERL (arXiv:2509.23808), from its release, whose script appears to switch it off. **Choices.** M begins with
    the first update's mean; the release begins with 0 and saturates. Before M is known there is no bonus. `weight` is
    fixed; the release can let it fall with performance. M counts measured steps without a hint.
    """

    reads: ClassVar[frozenset[str]] = frozenset(RANKS)
    weight: NotNegative = 1.0
    """Weight of the bonus."""
    gain: Finite = 2.0
    """How sharply the acceleration decides between rank and velocity."""
    kappa: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """The bonus is at most the size of the advantage over this."""
    new_share: PositiveShare = 0.3
    """Weight of an update's mean in the moving average."""
    max_deviation: Positive = 5.0
    """Largest relative distance from the moving average."""
    placement: Literal["all", "last"] = "all"
    """Which tokens of an answer get the bonus."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        bonus = self._find_bonus(table, np.abs(credit.values))[tokens.row]
        if self.placement == "last":
            bonus = np.where(tokens.position == tokens.step_length - 1, bonus, 0.0)
        return train_all(credit.values[tokens.row] + bonus, self)

    def _find_bonus(self, table: StepTable, size: FloatArray) -> FloatArray:
        values = [to_numbers(name, table.column(name)) for name in RANKS]
        if any(name not in table.extra for name in LEVELS):
            return np.zeros(len(table))
        levels = [to_numbers(name, table.column(name)) for name in LEVELS]
        rank, velocity, acceleration = (
            np.clip((value - level) / (np.abs(level) + EPS), -self.max_deviation, self.max_deviation)
            for value, level in zip(values, levels, strict=True)
        )
        beta = (1.0 + np.tanh(self.gain * acceleration / 2)) / 2  # the sigmoid, which no gain makes overflow
        phi = self.weight * (beta * np.tanh(rank) + (1.0 - beta) * np.tanh(velocity))
        return np.where(levels[0] == UNKNOWN, 0.0, np.minimum(np.maximum(phi, 0.0), size / self.kappa))

    def start(self, *, seed: int) -> RankLevels:
        return RankLevels(self.new_share)

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        step = int(tokens.row[token])
        own = float(credit.values[step])
        is_last = int(tokens.position[token]) == int(tokens.step_length[token]) - 1
        if LEVELS[0] not in table.extra or table.column(LEVELS[0])[step] == UNKNOWN:
            return Derivation(value=own, formula=f"{own:.6g}, and no bonus: there is no moving average yet")
        if self.placement == "last" and not is_last:
            return Derivation(value=own, formula=f"{own:.6g}, and no bonus: it stands on the last token")
        u = []
        for name, level_name in zip(RANKS, LEVELS, strict=True):
            level = float(table.column(level_name)[step])
            deviation = (float(table.column(name)[step]) - level) / (abs(level) + EPS)
            u.append(max(-self.max_deviation, min(self.max_deviation, deviation)))
        beta = (1 + math.tanh(self.gain * u[2] / 2)) / 2
        phi = self.weight * (beta * math.tanh(u[0]) + (1 - beta) * math.tanh(u[1]))
        value = own + min(max(phi, 0.0), abs(own) / self.kappa)
        said = f"{own:.6g} + min(max({phi:.6g}, 0), {abs(own):.6g} / {self.kappa:.6g}) = {value:.6g}"
        return Derivation(value=value, formula=said)


class EffectiveRank(Part, slot="scorer"):
    """Write the effective rank of each response's hidden states, how fast it grew, and how that changed.

        effective_rank    = exp(entropy of s / sum(s)),   s the singular values of the states less their mean
        rank_velocity     = mean over j >= 2 of delta_j,   delta_j = m_j - mean(m_1 .. m_(j-1))
        rank_acceleration = mean over j >= 3 of delta_j - delta_(j-1)

    m_j is the effective rank of the first j * stride + 1 sampled tokens, for as many j as the response has tokens for.
    The token credit `rank_bonus` reads all three.

    Source: VERL (arXiv:2509.23808) and its release; effective rank after Roy and Vetterli (EUSIPCO 2007). **Choices.**
    The states are those of the last layer, after its norm, as the head reads them. Fewer than two tokens, or equal
    states, have rank 0. With too few prefixes, velocity and acceleration are 0: up to 2 * stride tokens both, up to 3 *
    stride the acceleration. Every step is a response. Each prefix needs a decomposition on the CPU. Its time grows with
    the cube of the tokens: seconds for 1,000. A larger stride takes less time.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})
    writes: ClassVar[frozenset[str]] = frozenset(RANKS)
    stride: Count = 40
    """Tokens from one prefix to the next."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        info = []
        for states in read_response_states(groups, tools):
            *growth, whole = rank_prefixes(states, range(self.stride + 1, len(states) + 1, self.stride))
            info.append(dict(zip(RANKS, (whole, *measure_growth(growth)), strict=True)))
        return sort_by_step(groups, info)


def compute_effective_rank(states: FloatArray) -> float:
    """The effective rank of states (n, d): between 1 and the rank of the centred states, or 0.

    >>> round(compute_effective_rank(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])), 6)
    1.928623
    """
    if len(states) < 2:
        return 0.0
    centred = states - states[0]  # equal states give exactly 0
    centred -= centred.mean(axis=0)
    largest = float(np.abs(centred).max())
    if largest == 0.0:
        return 0.0
    singular = np.linalg.svd(centred / largest, compute_uv=False)
    share = singular / singular.sum()
    share = share[share > 0]
    return math.exp(-float(np.sum(share * np.log(share))))


def rank_prefixes(states: FloatArray, ends: Sequence[int]) -> list[float]:
    """The effective ranks of the first tokens up to each end, then that of all.

    If a response has fewer tokens than its states are wide, it is first rotated into as many columns. This keeps every
    singular value of every prefix: the first t tokens are then in the first t columns.
    """
    if not len(states):
        return [0.0]
    moved, lengths = states - states[0], (*ends, len(states))
    if moved.shape[1] <= len(moved):
        return [compute_effective_rank(moved[:length]) for length in lengths]
    triangle = np.asarray(np.linalg.qr(moved.T, mode="r")).T
    return [compute_effective_rank(triangle[:length, :length]) for length in lengths]


def measure_growth(ranks: Sequence[float]) -> tuple[float, float]:
    """Velocity and acceleration of the ranks of growing prefixes.

    >>> [round(value, 6) for value in measure_growth([1.2, 1.6, 1.9, 2.0])]
    [0.444444, 0.016667]
    """
    # Differences first, so that equal ranks give exactly 0.
    deltas = [
        math.fsum(rank - earlier for earlier in ranks[:place]) / place for place, rank in enumerate(ranks) if place
    ]
    velocity = math.fsum(deltas) / len(deltas) if deltas else 0.0
    changes = [after - before for before, after in pairwise(deltas)]
    return velocity, math.fsum(changes) / len(changes) if changes else 0.0
