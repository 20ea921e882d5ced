"""The policy loss: a ratio, a surrogate, corrections, penalties and an aggregate, put together.

Axis: T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import Literal

from pydantic import model_validator

from groupwise.data.samples import Totals
from groupwise.losses.aggregates import TokenMean
from groupwise.losses.penalties import k3
from groupwise.losses.ratios import TokenRatio
from groupwise.losses.slots import (
    AggregatePart,
    CorrectionPart,
    MeasuringPenalty,
    PenaltyPart,
    RatioPart,
    SurrogatePart,
    read_declared,
)
from groupwise.losses.surrogates import Clip
from groupwise.losses.token_columns import OLD_LOGP, UNITS, Tensor, TokenColumns, Unit
from groupwise.parts.part import Part, name_of
from groupwise.system.errors import ConfigError, RecordError

METRICS = {
    "loss/ratio": "mean ratio of the tokens that train; 1 on-policy",
    "loss/off_policy_ratio": "mean ratio of the tokens that another policy sampled, against that policy",
    "loss/clip_fraction_high": "share of tokens whose ratio passed the upper bound of the surrogate",
    "loss/clip_fraction_low": "share of tokens whose ratio passed the lower bound of the surrogate",
    "loss/clip_fraction_dual": "share of tokens of negative credit whose ratio passed the dual bound",
    "loss/kl_to_old": "how far the policy has moved since the start of the update: mean of rho - 1 - log rho",
    "loss/kl_to_reference": "how far the policy is from the reference: mean of k3",
    "loss/mismatch": "learner minus engine: mean of logp_old - logp_behaviour",
    "loss/mismatch_size": "learner against engine: mean of |logp_old - logp_behaviour|",
    "loss/ratio_variance": "how far ratios lie from 1: mean of (rho - 1)^2, which the penalty of that name bounds",
    "loss/correction": "mean weight that the corrections give a token",
    "loss/rejected": "share of tokens that the corrections dropped",
    "loss/entropy": "mean entropy of the distributions the tokens were drawn from",
    "loss/entropy_outside": "share of tokens whose entropy is outside the corridor around what was usual at their step",
    "loss/pair_gap": "how much likelier, a token, the winner of a pair is than the loser: mean over the pairs",
    "loss/pair_accuracy": "share of pairs whose winner is likelier, a token, than the loser",
}
"""Every metric a loss may report, in a sentence each."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Tally:
    """A sum and how many it sums, so that micro-batches add up: `(a + b).mean` is the mean over both."""

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
    """What a loss makes of a micro-batch; results of the micro-batches of an update add up, entry by entry."""

    loss: Tensor
    """The micro-batch's share of the update's loss, a scalar to call `backward` on."""
    metrics: Mapping[str, Tally]
    """What the tokens that train look like, by the names of `METRICS`."""


class PolicyLoss(Part, slot="loss"):
    """The loss of a policy on the tokens it sampled.

        loss = aggregate_t( correction_t * surrogate(ratio_t, A_t) + sum_k weight_k * penalty_{k,t} )

    Masked tokens are left out before anything is computed: not even a NaN among them changes the loss or a gradient,
    and their own gradient is exactly 0. Denominators are those of the whole update, so any split into micro-batches
    that keeps each `unit` whole gives the same loss and gradient. A micro-batch in which nothing trains gives a 0 that
    one can call `backward` on.

    Tokens that another policy sampled (recalled from an earlier update, or drawn with guidance in the prompt) are
    measured against that policy, whatever `old` says: their old log-prob is the one that was recorded with them.

    Choices: penalties share the aggregate of the surrogate, as in TRL and verl. `old="engine"` takes the engine's
    log-probs for the old ones (verl's bypass mode): it saves a forward pass and leaves the correction to the ratio.
    """

    ratio: RatioPart = TokenRatio()
    """How much likelier a token has become."""
    surrogate: SurrogatePart = Clip()
    """The trust region."""
    aggregate: AggregatePart = TokenMean()
    """How the losses of the tokens become one number."""
    corrections: tuple[CorrectionPart, ...] = ()
    """Weights for the gap between engine and learner; they multiply."""
    penalties: tuple[PenaltyPart, ...] = ()
    """What is added to the loss of each token."""
    old: Literal["learner", "engine"] = "learner"
    """Whose log-probs a ratio is taken against: the learner's at the start of the update, or those the engine gave."""

    @model_validator(mode="after")
    def _corrects_once(self) -> PolicyLoss:
        for correction in self.corrections if self.old == "engine" else ():
            if OLD_LOGP in read_declared([correction], "needs"):
                raise ConfigError(
                    f"{name_of(correction)} has nothing to correct with old='engine', where the ratio itself is taken "
                    "against the engine; leave out the one or the other"
                )
        return self

    @model_validator(mode="after")
    def _has_one_trust_region(self) -> PolicyLoss:
        pieces = (self.surrogate, *self._list_active_penalties())
        regions = [piece for piece in pieces if getattr(piece, "is_trust_region", False)]
        if len(regions) > 1:
            raise ConfigError(
                f"{name_of(regions[1])} holds ratios near 1 in place of a clip, and {name_of(regions[0])} bounds them "
                "too: two trust regions; use the surrogate 'plain' and one such penalty, or leave the penalty out"
            )
        return self

    @property
    def needs(self) -> frozenset[str]:
        needed = read_declared(self._list_pieces(), "needs")
        return needed - {OLD_LOGP} if self.old == "engine" else needed

    @property
    def columns(self) -> frozenset[str]:
        return read_declared(self._list_pieces(), "columns")

    @property
    def channels(self) -> frozenset[str]:
        return read_declared(self._list_pieces(), "channels")

    @property
    def unit(self) -> Unit:
        """What must lie whole in one micro-batch: each sample, or each step or trajectory with all its samples."""
        units: list[Unit] = [getattr(part, "unit", "token") for part in self._list_pieces()]
        return max(["sample", *units], key=UNITS.index)

    @property
    def ignores_zero_credit(self) -> bool:
        """Whether a sample without credit adds nothing to loss and gradient, so that it need not be computed.

        A promise of the class that computes: one that inherits it and computes something else has to make it again.
        """
        scales: bool = vars(_find_computing_class(self.surrogate)).get("scales_with_credit", False)
        is_ours = _find_computing_class(self) is PolicyLoss
        return scales and is_ours and self.unit == "sample" and not self._list_active_penalties()

    def select_columns(self, columns: TokenColumns) -> TokenColumns:
        """The tokens that train, measured against the policy that `old` names, or the one that sampled them."""
        if self.old == "engine":
            columns = replace(columns, logp_old=columns.logp_behaviour)
        for need in sorted(self.needs):
            columns.require(need)
        return columns.select_trained().use_sampler_logps()

    def __call__(self, columns: TokenColumns, totals: Totals) -> LossResult:
        columns = self.select_columns(columns)
        if self.unit == "trajectory":
            _check_whole_trajectories(columns, totals)
        ratio_T = self.ratio(columns)
        outcome = self.surrogate(ratio_T, columns)
        loss_T = outcome.loss
        weights = [correction(columns).detach() for correction in self.corrections]
        for weight_T in weights:
            loss_T = loss_T * weight_T
        penalties = self._list_active_penalties()
        for penalty in penalties:
            loss_T = loss_T + penalty.weight * penalty(columns)
        measured = _measure_tokens(columns) | {
            f"clip_fraction_{name}": hit_T for name, hit_T in outcome.clipped.items()
        }
        measured["ratio"] = ratio_T
        for penalty in penalties:
            measured |= penalty.measure(columns) if isinstance(penalty, MeasuringPenalty) else {}
        if self.old == "learner" and columns.logp_old is not None:
            gap_T = columns.logp_old - columns.logp_behaviour
            measured |= {"mismatch": gap_T, "mismatch_size": gap_T.abs()}
        if weights:
            weight_T = reduce(mul, weights)
            measured |= {"correction": weight_T, "rejected": weight_T == 0}
        if columns.off_policy is None:
            metrics = tally_tokens(measured, loss_T)
        else:  # apart: together they would say that the update moved the policy, where its past lies far away
            own, other = (which.nonzero()[:, 0] for which in (~columns.off_policy, columns.off_policy))
            of_own = {name: value_T.index_select(0, own) for name, value_T in measured.items()}
            metrics = tally_tokens(of_own | {"off_policy_ratio": ratio_T.index_select(0, other)}, loss_T)
        return LossResult(loss=self.aggregate(loss_T, columns, totals), metrics=metrics)

    def _list_active_penalties(self) -> tuple[PenaltyPart, ...]:
        return tuple(penalty for penalty in self.penalties if penalty.weight)

    def _list_pieces(self) -> tuple[object, ...]:
        return self.ratio, self.surrogate, self.aggregate, *self.corrections, *self._list_active_penalties()


def _find_computing_class(part: object) -> type:
    """The class whose `__call__` a part has."""
    return next(kind for kind in type(part).__mro__ if "__call__" in vars(kind))


def _check_whole_trajectories(columns: TokenColumns, totals: Totals) -> None:
    """Refuse a trajectory of which a part lies elsewhere: a ratio over the rest would be silently wrong."""
    here: list[int] = columns.trajectory.bincount(minlength=len(totals.trajectory_tokens)).tolist()
    for number, (num_here, counted) in enumerate(zip(here, totals.trajectory_tokens, strict=False)):
        if num_here not in (0, counted):
            raise RecordError(
                f"trajectory {number}: {num_here} of its {counted} tokens are in this micro-batch, but the loss takes "
                "whole trajectories together; keep each in one micro-batch (PolicyLoss.unit)"
            )


def _measure_tokens(columns: TokenColumns) -> dict[str, Tensor]:
    """What can be said of the tokens whatever the loss (T each)."""
    measured: dict[str, Tensor] = {}
    logp_T = columns.logp.detach()
    if columns.logp_old is not None:
        measured["kl_to_old"] = k3(logp_T - columns.logp_old)
    if columns.logp_ref is not None:
        measured["kl_to_reference"] = k3(columns.logp_ref - logp_T)
    if columns.entropy is not None:
        measured["entropy"] = columns.entropy
    return measured


def tally_tokens(measured: Mapping[str, Tensor], like_T: Tensor) -> dict[str, Tally]:
    """Sum up what was measured at each token (T each), under the names of `METRICS`."""
    return {
        f"loss/{name}": Tally(total=value_T.detach().to(like_T.dtype).sum(), count=len(value_T))
        for name, value_T in measured.items()
    }
