"""The slots of a loss: arguments and result of each of its parts.

A part sees only tokens that train. It may declare `needs`, the columns beyond the basics (`OLD_LOGP`, `REFERENCE_LOGP`,
`ENTROPY`); `columns`, the named numbers it reads (`TokenColumns.column`); `channels`, the further advantages it reads
(`TokenColumns.channel`); and `unit`, what must be whole in one micro-batch (`step`, `trajectory`). A part that declares
nothing reads the basics, token by token. Axis: T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol, runtime_checkable

from groupwise.data.samples import Totals
from groupwise.losses.token_columns import Tensor, TokenColumns
from groupwise.parts.part import Slot


def read_declared(parts: Iterable[object], name: str) -> frozenset[str]:
    """The union of what these parts declare under a name."""
    return frozenset().union(*[getattr(part, name, ()) for part in parts])


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenLoss:
    """The result of a surrogate: one loss per token, and where it was clipped."""

    loss: Tensor
    """Loss of each token (T), to be minimised."""
    clipped: Mapping[str, Tensor] = field(default_factory=dict)
    """Where each bound of the surrogate was active (T): `high`, `low`, `dual`."""


Ratio = Callable[[TokenColumns], Tensor]
"""How much more likely a token has become since it was sampled."""

Surrogate = Callable[[Tensor, TokenColumns], TokenLoss]
"""From ratios and advantages to one loss per token: the trust region."""

Correction = Callable[[TokenColumns], Tensor]
"""Weights for the difference between the engine that sampled the tokens and the learner; without a gradient."""

Aggregate = Callable[[Tensor, TokenColumns, Totals], Tensor]
"""From the losses of the tokens to one number; its denominators are those of the whole update."""


class Penalty(Protocol):
    """Adds weight x value to the loss of each token."""

    @property
    def weight(self) -> float:
        """How much of it is added; at 0 it is not computed and needs nothing."""

    def __call__(self, columns: TokenColumns) -> Tensor: ...


@runtime_checkable
class MeasuringPenalty(Protocol):
    """A penalty that reports metrics."""

    def measure(self, columns: TokenColumns) -> dict[str, Tensor]:
        """Values that the loss reports, by name (T each)."""


RatioPart = Annotated[Ratio, Slot("ratio")]
SurrogatePart = Annotated[Surrogate, Slot("surrogate")]
CorrectionPart = Annotated[Correction, Slot("correction")]
PenaltyPart = Annotated[Penalty, Slot("penalty")]
AggregatePart = Annotated[Aggregate, Slot("aggregate")]
