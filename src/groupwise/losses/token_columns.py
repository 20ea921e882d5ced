"""The input of a loss: the sampled tokens of a micro-batch as columns.

Axis: T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from groupwise.data.samples import Totals
from groupwise.system.errors import RecordError, nearest

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:  # for annotations only: losses and methods do not import torch
    Tensor = Any

OLD_LOGP, REFERENCE_LOGP, ENTROPY, SPANS = "old_logp", "reference_logp", "entropy", "spans"
"""What a loss part may need beyond the basics."""

COLUMN_OF = {OLD_LOGP: "logp_old", REFERENCE_LOGP: "logp_ref", ENTROPY: "entropy", SPANS: "span"}
"""The column of each need."""

PAIRS = "pairs"
"""The need of a loss over pairs of rollouts: `Totals.pair_members`, which the slot `pairing` fills."""

MAPPINGS = ("named", "channels")
"""Fields of `TokenColumns` that hold columns by name."""

Unit = Literal["token", "span", "sample", "step", "trajectory"]
UNITS: tuple[Unit, ...] = ("token", "span", "sample", "step", "trajectory")
"""The units of a ratio, a weight or a mean, smallest first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenColumns:
    """The sampled tokens of a micro-batch, packed: one entry per token in every column.

    Ids are numbers, not positions: the tokens of a sample need not be adjacent, and a trajectory may continue in
    another micro-batch. `step` counts within its trajectory, so a step is the pair (trajectory, step).

    Worked example: one trajectory of two steps, each a sample of its own, of two tokens and one.

        sample = [0, 0, 1]   trajectory = [0, 0, 0]   step = [0, 0, 1]   mask = [True, True, True]
    """

    logp: Tensor
    """Log-prob under the current weights (T); it has the gradient."""
    logp_behaviour: Tensor
    """Log-prob that the engine reported when it sampled the token (T)."""
    advantage: Tensor
    """Advantage of the token (T)."""
    mask: Tensor
    """Whether the token trains (T): True or False, 1 or 0. The other entries of a masked token are never read."""
    sample: Tensor
    """Sample of each token (T)."""
    step: Tensor
    """Index of each token's step within its trajectory (T)."""
    trajectory: Tensor
    """Trajectory of each token, by its number in the update (T)."""
    off_policy: Tensor | None = None
    """Whether another policy than the learner's sampled the token (T), True or False; None = no token."""
    logp_old: Tensor | None = None
    """Log-prob under the learner's weights at the start of the update (T)."""
    logp_ref: Tensor | None = None
    """Log-prob under the reference policy (T)."""
    entropy: Tensor | None = None
    """Entropy of the distribution that the token was sampled from, under the current weights (T); it has a gradient."""
    span: Tensor | None = None
    """Span of its sample that each token belongs to (T), as the token credit numbers them; None = not known."""
    group: Tensor | None = None
    """Group of each token, by its number in the update (T): the rollouts of one task."""
    named: Mapping[str, Tensor] = field(default_factory=dict)
    """Named numbers of each token's sample (T each): those that the loss declares in `columns`."""
    channels: Mapping[str, Tensor] = field(default_factory=dict)
    """Further advantages of the token by name (T each): the channels that the loss declares in `channels`."""

    def __post_init__(self) -> None:
        num = len(self.logp)
        for name, column in self.list_columns():
            if tuple(column.shape) != (num,):
                raise RecordError(
                    f"column {name!r} has shape {tuple(column.shape)}, but logp has {tuple(self.logp.shape)}; "
                    "every column needs one entry per token"
                )
        if str(self.mask.dtype) != "torch.bool" and not bool(((self.mask == 0) | (self.mask == 1)).all()):
            raise RecordError("column 'mask' has a number that is neither 0 nor 1; put weights into the advantage")

    def __len__(self) -> int:
        return len(self.logp)

    def require(self, need: str) -> Tensor:
        """The column of a need (T), or an error that says how to supply it."""
        column: Tensor | None = getattr(self, COLUMN_OF[need])
        if column is None:
            raise RecordError(
                f"the loss needs {need}, but column {COLUMN_OF[need]!r} is missing; pass it, or leave out the part "
                "that reads it (a penalty of weight 0 reads nothing)"
            )
        return column

    def check_counted(self, totals: Totals) -> None:
        """Raise an error if the totals do not contain the trajectories of these tokens."""
        num = len(totals.trajectory_tokens)
        if len(self) and int(self.trajectory.max()) >= num:
            raise RecordError(
                f"trajectory {int(self.trajectory.max())} is not among the {num} of the totals; count the totals over "
                "all samples of the update (Totals.count) and number trajectories from 0"
            )

    def log_ratio(self, largest: float = 20.0) -> Tensor:
        """The change of each token's log-prob since the update began (T), clamped before an exp."""
        return (self.logp - self.require(OLD_LOGP)).clamp(-largest, largest)

    def column(self, name: str) -> Tensor:
        return _find_column(self.named, name, "column")

    def channel(self, name: str) -> Tensor:
        return _find_column(self.channels, name, "channel")

    def list_columns(self) -> list[tuple[str, Tensor]]:
        """Every given column with its name: the fields, then the entries of `named` and `channels`."""
        own = [pair for pair in vars(self).items() if pair[0] not in MAPPINGS and pair[1] is not None]
        return [*own, *self.named.items(), *self.channels.items()]

    def select_trained(self, old: Literal["learner", "engine"] = "learner") -> TokenColumns:
        """Only the tokens that train, in float32 or better; only `logp` and `entropy` keep a gradient.

        The others are left out before anything is computed. Multiplying by 0 is not enough: 0 x NaN is NaN. The old
        log-probs of off-policy tokens become those of the sampling; with `old` = engine, those of all tokens.
        """
        kept = self.mask.nonzero()[:, 0]
        chosen: dict[str, Any] = {}
        for name, column in vars(self).items():
            if name not in MAPPINGS and column is not None:
                chosen[name] = column.index_select(0, kept)
        logp = chosen["logp"]
        chosen["logp"] = logp = logp if logp.dtype.itemsize >= 4 else logp.float()
        for name in ("logp_behaviour", "advantage", "logp_old", "logp_ref"):
            if name in chosen:
                chosen[name] = chosen[name].detach().to(logp)
        if "entropy" in chosen:
            chosen["entropy"] = chosen["entropy"].to(logp)
        if old == "engine":
            chosen["logp_old"] = chosen["logp_behaviour"]
        elif self.off_policy is not None and self.logp_old is not None:
            chosen["logp_old"] = chosen["logp_behaviour"].where(chosen["off_policy"], chosen["logp_old"])
        for name in MAPPINGS:
            by_name: Mapping[str, Tensor] = getattr(self, name)
            chosen[name] = {key: column.index_select(0, kept).detach().to(logp) for key, column in by_name.items()}
        return replace(self, **chosen)

    def units(self, unit: Unit) -> Units:
        """The units of this kind that these tokens form."""
        if unit == "token":
            return Units(label=self.sample.new_ones(len(self)).cumsum(0) - 1, num=len(self))
        if unit == "step":
            return _number_pairs(self.trajectory, self.step)
        if unit == "span":
            return _number_pairs(self.sample, self.require(SPANS))
        return _number_densely(self.sample if unit == "sample" else self.trajectory)


@dataclass(frozen=True, eq=False, kw_only=True)
class Units:
    """Tokens sorted into units, numbered densely: label [0, 0, 1] says that two tokens form unit 0."""

    label: Tensor
    """Unit of each token (T)."""
    num: int
    """How many units there are."""

    def sum(self, values: Tensor) -> Tensor:
        """Give each token the sum over its unit (T)."""
        return values.new_zeros(self.num).index_add(0, self.label, values).index_select(0, self.label)

    def size(self, like: Tensor) -> Tensor:
        """Give each token the number of tokens of its unit (T), in the type of `like`."""
        return self.sum(like.detach().new_ones(len(like)))

    def mean(self, values: Tensor) -> Tensor:
        """Give each token the mean over its unit (T)."""
        return self.sum(values) / self.size(values)


def _find_column(columns: Mapping[str, Tensor], name: str, what: str) -> Tensor:
    if name not in columns:
        raise RecordError(
            f"the loss reads the {what} {name!r}, which it did not get; declare it in `{what}s` of the "
            f"loss. {nearest(name, columns)}"
        )
    return columns[name]


def _number_pairs(first: Tensor, second: Tensor) -> Units:
    outer, inner = _number_densely(first), _number_densely(second)
    return _number_densely(outer.label * inner.num + inner.label)


def _number_densely(ids: Tensor) -> Units:
    distinct, label = ids.unique(return_inverse=True)
    return Units(label=label, num=len(distinct))


# The usual result of a first pass: sums over the tokens of each trajectory.
#
# Axes: T tokens of a micro-batch, R trajectories of the update.


@dataclass(frozen=True, eq=False, kw_only=True)
class TrajectorySums:
    """Sums over the tokens of each trajectory, by its number in the update; those of micro-batches add up.

    A trajectory may be split over several micro-batches; the merged sums hold all its tokens. Sums are float64,
    whatever the type of the log-probs, because statistics of groups are computed from them.

    Worked example: trajectory 0 has one token here and one in another micro-batch, trajectory 1 two tokens here.

        here        tokens [1, 2]   sums["logp"] [-0.5, -3.0]
        elsewhere   tokens [1, 0]   sums["logp"] [-1.5,  0.0]
        merged      tokens [2, 2]   sums["logp"] [-2.0, -3.0]   mean("logp") [-1.0, -1.5]
    """

    tokens: Tensor
    """Number of tokens of each trajectory that train (R)."""
    group: Tensor
    """Group of each trajectory (R); -1 if none of its tokens is here."""
    sums: Mapping[str, Tensor]
    """Sum over its tokens, by name (R each)."""

    @classmethod
    def of(cls, columns: TokenColumns, totals: Totals, **values: Tensor) -> TrajectorySums:
        """Sum over a micro-batch: `columns` are its tokens that train, `values` the summands (T each)."""
        num = len(totals.trajectory_tokens)
        if columns.group is None:
            raise RecordError("column 'group' is missing, which a first pass over groups reads; pass it")
        columns.check_counted(totals)
        ones_T = columns.logp.detach().new_ones(len(columns)).double()
        empty_R = ones_T.new_zeros(num)
        return cls(
            tokens=empty_R.index_add(0, columns.trajectory, ones_T),
            group=columns.group.new_full((num,), -1).index_copy(0, columns.trajectory, columns.group),
            sums={
                name: empty_R.index_add(0, columns.trajectory, value_T.detach().to(ones_T))
                for name, value_T in values.items()
            },
        )

    def __add__(self, other: TrajectorySums) -> TrajectorySums:
        return TrajectorySums(
            tokens=self.tokens + other.tokens,
            group=self.group.maximum(other.group),
            sums={name: sum_R + other.sums[name] for name, sum_R in self.sums.items()},
        )

    def mean(self, name: str) -> Tensor:
        """Mean over each trajectory's tokens (R); 0 if it has none."""
        return self.sums[name] / self.tokens.clamp(min=1)


def share_of_step(value: Tensor, slope_R: Tensor, moving_T: Tensor, columns: TokenColumns, totals: Totals) -> Tensor:
    """A micro-batch's part of a loss of the whole optimizer step; the parts add up to its value and gradient.

        share = sum_t slope[trajectory of t] * (x_t - sg(x_t)) + sg(value) * tokens here / tokens of the step

    Here x_t is what the loss sums over each trajectory. The slope of a trajectory is the derivative of the loss by its
    sum, which the first pass finds. The value is spread evenly over the tokens, by convention.

    Args:
        value: the loss of the whole optimizer step, a scalar.
        slope_R: its derivative by the sum over each trajectory's tokens (R).
        moving_T: the summands (T), with their gradient.
        columns: the micro-batch's tokens that train.
        totals: those of the optimizer step.
    """
    moved_T = moving_T - moving_T.detach()
    by_gradient = (slope_R.detach().index_select(0, columns.trajectory).to(moved_T) * moved_T).sum()
    return by_gradient + (value.detach() * (len(columns) / max(totals.tokens, 1))).to(moved_T)
