"""The slots of a loss: what each of its parts is handed and what it returns.

A part sees only tokens that train. It may declare of itself: `needs`, what it reads beyond the basics (`OLD_LOGP`,
`REFERENCE_LOGP`, `ENTROPY`); `columns`, the named numbers it reads (`TokenColumns.column`); `channels`, the further
credit it reads (`TokenColumns.channel`); and `unit`, what it must see whole in one micro-batch (`step`, `trajectory`).
A part that declares nothing reads the basics, token by token. Axis: T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol, runtime_checkable

from groupwise.data.samples import Totals
from groupwise.losses.token_columns import Tensor, TokenColumns
from groupwise.parts.part import Slot


def read_declared(parts: Iterable[object], name: str) -> frozenset[str]:
    """What parts declare under a name, together."""
    return frozenset().union(*(getattr(part, name, ()) for part in parts))


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenLoss:
    """What a surrogate makes of the ratios: a loss a token, and where it bounded them."""

    loss: Tensor
    """Loss of each token (T), to be minimised."""
    clipped: Mapping[str, Tensor] = field(default_factory=dict)
    """Where each bound of the surrogate acted (T): `high`, `low`, `dual`."""


Ratio = Callable[[TokenColumns], Tensor]
"""How much likelier a token has become since it was sampled."""

Surrogate = Callable[[Tensor, TokenColumns], TokenLoss]
"""Turns ratios and credit into a loss a token: the trust region."""

Correction = Callable[[TokenColumns], Tensor]
"""Weighs tokens for the gap between the engine that sampled them and the learner; carries no gradient."""

Aggregate = Callable[[Tensor, TokenColumns, Totals], Tensor]
"""Makes one number of the losses of the tokens; its denominators are those of the whole update."""


class Penalty(Protocol):
    """Adds weight x value to the loss of each token."""

    @property
    def weight(self) -> float:
        """How much of it is added; at 0 it is not computed and needs nothing."""

    def __call__(self, columns: TokenColumns) -> Tensor: ...


@runtime_checkable
class MeasuringPenalty(Protocol):
    """A penalty that has something to report."""

    def measure(self, columns: TokenColumns) -> dict[str, Tensor]:
        """What the loss reports of the tokens, by name (T each)."""


RatioPart = Annotated[Ratio, Slot("ratio")]
SurrogatePart = Annotated[Surrogate, Slot("surrogate")]
CorrectionPart = Annotated[Correction, Slot("correction")]
PenaltyPart = Annotated[Penalty, Slot("penalty")]
AggregatePart = Annotated[Aggregate, Slot("aggregate")]
