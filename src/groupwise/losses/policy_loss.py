"""The policy loss: ratio, surrogate, corrections, penalties and aggregate together.

Axis: T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter, mul
from typing import Literal

from pydantic import model_validator

from groupwise.data.samples import Totals
from groupwise.losses import slots
from groupwise.losses.aggregates import TokenMean
from groupwise.losses.penalties import k3
from groupwise.losses.ratios import TokenRatio
from groupwise.losses.surrogates import Clip
from groupwise.losses.token_columns import OLD_LOGP, UNITS, Tensor, TokenColumns, Unit
from groupwise.parts.part import Part, name_of
from groupwise.system.errors import ConfigError, RecordError

METRICS = {
    "loss/ratio": "mean ratio of the tokens that train; 1 on-policy",
    "loss/off_policy_ratio": "mean ratio of the tokens that another policy sampled, against that policy",
    "loss/clip_fraction_high": "fraction of tokens whose ratio passed the upper bound of the surrogate",
    "loss/clip_fraction_low": "fraction of tokens whose ratio passed the lower bound of the surrogate",
    "loss/clip_fraction_dual": "fraction of tokens with a negative advantage whose ratio passed the dual bound",
    "loss/kl_to_old": "how far the policy has moved since the start of the update: mean of rho - 1 - log rho",
    "loss/kl_to_reference": "how far the policy is from the reference: mean of k3",
    "loss/mismatch": "learner minus engine: mean of logp_old - logp_behaviour",
    "loss/mismatch_size": "learner against engine: mean of |logp_old - logp_behaviour|",
    "loss/ratio_variance": "how far ratios lie from 1: mean of (rho - 1)^2, which the penalty of that name bounds",
    "loss/correction": "mean weight that the corrections give a token",
    "loss/rejected": "fraction of tokens that the corrections dropped",
    "loss/entropy": "mean entropy of the distributions the tokens were sampled from",
    "loss/entropy_outside": "fraction of tokens whose entropy is outside the corridor around that of their step",
    "loss/pair_gap": "how much more likely, per token, the winner of a pair is than the loser: mean over the pairs",
    "loss/pair_accuracy": "fraction of pairs whose winner is more likely, per token, than the loser",
}
"""Every metric that a loss may report, with one sentence each."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Tally:
    """A sum and its count, so that micro-batches add up: `(a + b).mean` is the mean over both."""

    total: Tensor
    """The sum, a scalar without a gradient."""
    count: int
    """How many values were summed."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(total=self.total + other.total, count=self.count + other.count)

    @property
    def mean(self) -> float:
        return float(self.total) / self.count if self.count else float("nan")


@dataclass(frozen=True, eq=False, kw_only=True)
class LossResult:
    """The result of a loss on one micro-batch; results of the micro-batches of an update add up, entry by entry."""

    loss: Tensor
    """The micro-batch's part of the update's loss, a scalar to call `backward` on."""
    metrics: Mapping[str, Tally]
    """Statistics of the tokens that train, by the names of `METRICS`."""


class PolicyLoss(Part, slot="loss"):
    """The loss of a policy on the tokens it sampled.

        loss = aggregate_t( correction_t * surrogate(ratio_t, A_t) + sum_k weight_k * penalty_{k,t} )

    Masked tokens are left out before anything is computed: even a NaN among them changes nothing, and their own
    gradient is exactly 0. Denominators are those of the whole update. So any split into micro-batches that keeps each
    `unit` whole gives the same loss and gradient. If nothing trains in a micro-batch, its loss is a 0 that supports
    `backward`.

    Ratios of tokens that another policy sampled (replayed, or sampled with a hint in the prompt) are taken against that
    policy, whatever `old` says: their old log-prob is the one that was recorded with them.

    Choices: penalties use the aggregate of the surrogate, as in TRL and verl. `old="engine"` takes the engine's
    log-probs for the old ones (verl's bypass mode). This saves a forward pass, and the ratio itself then corrects for
    the engine.
    """

    ratio: slots.RatioPart = TokenRatio()
    """How much more likely a token has become."""
    surrogate: slots.SurrogatePart = Clip()
    """The trust region."""
    aggregate: slots.AggregatePart = TokenMean()
    """How the losses of the tokens become one number."""
    corrections: tuple[slots.CorrectionPart, ...] = ()
    """Weights for the difference between engine and learner; they multiply."""
    penalties: tuple[slots.PenaltyPart, ...] = ()
    """Terms that are added to the loss of each token."""
    old: Literal["learner", "engine"] = "learner"
    """The log-probs in the ratio: the learner's at the start of the update, or those of the engine."""

    @model_validator(mode="after")
    def _corrects_once(self) -> PolicyLoss:
        for correction in self.corrections if self.old == "engine" else ():
            if OLD_LOGP in slots.read_declared([correction], "needs"):
                raise ConfigError(
                    f"{name_of(correction)} has nothing to correct with old='engine', because the ratio itself is "
                    "taken against the engine; leave out one of the two"
                )
        return self

    @model_validator(mode="after")
    def _has_one_trust_region(self) -> PolicyLoss:
        pieces = (self.surrogate, *self._list_active_penalties())
        regions = [piece for piece in pieces if getattr(piece, "is_trust_region", False)]
        if len(regions) > 1:
            raise ConfigError(
                f"{name_of(regions[1])} replaces a clip, but {name_of(regions[0])} clips "
                "too: two trust regions; use the surrogate 'plain' and one such penalty, or leave the penalty out"
            )
        return self

    @property
    def needs(self) -> frozenset[str]:
        needed = slots.read_declared(self._list_pieces(), "needs")
        return needed - {OLD_LOGP} if self.old == "engine" else needed

    @property
    def columns(self) -> frozenset[str]:
        return slots.read_declared(self._list_pieces(), "columns")

    @property
    def channels(self) -> frozenset[str]:
        return slots.read_declared(self._list_pieces(), "channels")

    @property
    def unit(self) -> Unit:
        """What must be whole in one micro-batch: each sample, or each step or trajectory with all its samples."""
        units: list[Unit] = [getattr(part, "unit", "token") for part in self._list_pieces()]
        return max(["sample", *units], key=UNITS.index)

    @property
    def ignores_zero_credit(self) -> bool:
        """Whether a sample with advantage 0 adds nothing to loss and gradient, so it need not be computed.

        The class that computes promises this. A subclass that computes something else has to promise it again.
        """
        computing = next(kind for kind in type(self.surrogate).__mro__ if "__call__" in vars(kind))
        scales: bool = vars(computing).get("scales_with_credit", False)
        is_ours = type(self).__call__ is PolicyLoss.__call__
        return scales and is_ours and self.unit == "sample" and not self._list_active_penalties()

    def __call__(self, columns: TokenColumns, totals: Totals) -> LossResult:
        columns = columns.select_trained(self.old)
        if self.unit == "trajectory":
            _check_whole_trajectories(columns, totals)
        ratio_T = self.ratio(columns)
        outcome = self.surrogate(ratio_T, columns)
        loss_T = outcome.loss
        weights = []
        for correction in self.corrections:
            weights.append(correction(columns).detach())
            loss_T = loss_T * weights[-1]
        penalties = self._list_active_penalties()
        for penalty in penalties:
            loss_T = loss_T + penalty.weight * penalty(columns)
        logp_T, measured = columns.logp.detach(), dict[str, Tensor]()
        if columns.logp_old is not None:
            measured["kl_to_old"] = k3(logp_T - columns.logp_old)
        if columns.logp_ref is not None:
            measured["kl_to_reference"] = k3(columns.logp_ref - logp_T)
        if columns.entropy is not None:
            measured["entropy"] = columns.entropy
        for name, hit_T in outcome.clipped.items():
            measured[f"clip_fraction_{name}"] = hit_T
        measured["ratio"] = ratio_T
        for penalty in penalties:
            measured |= penalty.measure(columns) if isinstance(penalty, slots.MeasuringPenalty) else {}
        if self.old == "learner" and columns.logp_old is not None:
            gap_T = columns.logp_old - columns.logp_behaviour
            measured |= {"mismatch": gap_T, "mismatch_size": gap_T.abs()}
        if weights:
            weight_T = reduce(mul, weights)
            measured |= {"correction": weight_T, "rejected": weight_T == 0}
        if columns.off_policy is None:
            metrics = tally_tokens(measured, loss_T)
        else:  # apart: together they would show a large policy change, though only old samples are far away
            own, other = (which.nonzero()[:, 0] for which in (~columns.off_policy, columns.off_policy))
            of_own = {name: value_T.index_select(0, own) for name, value_T in measured.items()}
            metrics = tally_tokens(of_own | {"off_policy_ratio": ratio_T.index_select(0, other)}, loss_T)
        return LossResult(loss=self.aggregate(loss_T, columns, totals), metrics=metrics)

    def _list_active_penalties(self) -> tuple[slots.PenaltyPart, ...]:
        return tuple(filter(attrgetter("weight"), self.penalties))

    def _list_pieces(self) -> tuple[object, ...]:
        return self.ratio, self.surrogate, self.aggregate, *self.corrections, *self._list_active_penalties()


def _check_whole_trajectories(columns: TokenColumns, totals: Totals) -> None:
    """Raise an error if a part of a trajectory is in another micro-batch: a ratio over the rest would be wrong."""
    here: list[int] = columns.trajectory.bincount(minlength=len(totals.trajectory_tokens)).tolist()
    for number, (num_here, counted) in enumerate(zip(here, totals.trajectory_tokens, strict=False)):
        if num_here not in (0, counted):
            raise RecordError(
                f"trajectory {number}: {num_here} of its {counted} tokens are in this micro-batch, but the loss takes "
                "whole trajectories together; keep each in one micro-batch (PolicyLoss.unit)"
            )


def tally_tokens(measured: Mapping[str, Tensor], like_T: Tensor) -> dict[str, Tally]:
    """Sum measured values over the tokens (T each), under the names of `METRICS`."""
    return {
        f"loss/{name}": Tally(total=value_T.detach().to(like_T.dtype).sum(), count=len(value_T))
        for name, value_T in measured.items()
    }
