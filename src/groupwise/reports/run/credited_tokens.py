"""The tokens of a response with their credit, and how reports show them: runs of tokens that are shaded alike.

Axis: T sampled tokens of the response.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from groupwise.core.segments import BoolArray, FloatArray
from groupwise.reports.run.number_format import format_signed

NUM_SHADES = 5
"""How many shades credit has on either side of 0."""
NO_CREDIT, NO_TRAINING = "does not train", "forced on the policy, does not train"


@dataclass(frozen=True, eq=False, kw_only=True)
class CreditedTokens:
    """The credit of the tokens of one response, and which of them train."""

    ids: Sequence[int]
    """Ids of all tokens of the response, first those that were forced on the policy."""
    num_forced: int
    """How many were forced."""
    values: FloatArray
    """Credit of each sampled token (T)."""
    trains: BoolArray
    """Whether each sampled token trains (T)."""

    @property
    def trained(self) -> FloatArray:
        """The credit of the tokens that train."""
        return self.values[self.trains]

    def describe(self) -> str:
        """How many tokens train, and what credit they have."""
        trained = self.trained.tolist()
        if not trained:
            return f"none of {len(self.values)} sampled tokens trains"
        low, high = min(trained), max(trained)
        span = format_signed(low) if low == high else f"{format_signed(low)} to {format_signed(high)}"
        total = format_signed(math.fsum(trained))
        return f"{len(trained)} of {len(self.values)} sampled tokens train; credit {span}, sum {total}"

    def as_json(self, texts: Sequence[str] | None) -> list[dict[str, Any]]:
        """Each token as plain data; credit is null where it does not train."""
        flags = [False] * self.num_forced + self.trains.tolist()
        values = [None] * self.num_forced + self.values.tolist()
        return [
            {
                "token": int(token),
                "text": None if texts is None else texts[place],
                "trains": trains,
                "credit": value if trains else None,
            }
            for place, (token, trains, value) in enumerate(zip(self.ids, flags, values, strict=True))
        ]


@dataclass(frozen=True, kw_only=True)
class ShadedText:
    """Neighbouring tokens of one credit, as one piece of text."""

    text: str
    """What they say; their ids where nothing here can tell."""
    credit: float | None
    """Their credit; None = they do not train."""
    first: int
    """Position of the first of them in the response."""
    num: int
    """How many tokens these are."""
    is_forced: bool
    """Whether they were forced on the policy."""

    @property
    def meaning(self) -> str:
        """What is to be said of them: which tokens these are, and their credit."""
        place = f"token {self.first}" if self.num == 1 else f"tokens {self.first} to {self.first + self.num - 1}"
        if self.credit is None:
            return f"{place}: {NO_TRAINING if self.is_forced else NO_CREDIT}"
        return f"{place}: {format_signed(self.credit, 4)}"


def shade_tokens(
    tokens: CreditedTokens, texts: Sequence[str] | None, *, first: int = 0, end: int | None = None
) -> list[ShadedText]:
    """The tokens from one position of the response to another, in pieces of equal credit.

    Args:
        tokens: those of a response.
        texts: the text of each, special ones too; None = not known, and ids are shown.
        first: position of the first token that is shown.
        end: position after the last one; None = the end of the response.
    """
    places = range(first, len(tokens.ids) if end is None else min(end, len(tokens.ids)))
    return [
        _join_tokens(tokens, texts, list(alike)) for _, alike in groupby(places, key=lambda place: _key(tokens, place))
    ]


def find_reach(responses: Iterable[CreditedTokens]) -> float:
    """The size of credit that full shading stands for: the largest among tokens that train."""
    return max((float(np.abs(tokens.trained).max(initial=0.0)) for tokens in responses), default=0.0)


def choose_shade(credit: float, reach: float) -> int:
    """How strongly a credit is shaded, by its sign: from -NUM_SHADES to NUM_SHADES, 0 for 0 alone.

    >>> choose_shade(0.01, 1.0), choose_shade(-1.0, 1.0), choose_shade(3.0, 1.0), choose_shade(0.0, 1.0)
    (1, -5, 5, 0)
    """
    if not credit or not math.isfinite(credit):
        return 0
    size = min(max(math.ceil(NUM_SHADES * min(abs(credit) / reach, 1.0) if reach else 1), 1), NUM_SHADES)
    return size if credit > 0 else -size


def _key(tokens: CreditedTokens, place: int) -> tuple[bool, float | None]:
    sampled = place - tokens.num_forced
    if sampled < 0:
        return True, None
    return False, float(tokens.values[sampled]) if tokens.trains[sampled] else None


def _join_tokens(tokens: CreditedTokens, texts: Sequence[str] | None, places: Sequence[int]) -> ShadedText:
    is_forced, credit = _key(tokens, places[0])
    text = (
        " ".join(str(tokens.ids[place]) for place in places) + " "
        if texts is None
        else "".join(texts[place] for place in places)
    )
    return ShadedText(text=text, credit=credit, first=places[0], num=len(places), is_forced=is_forced)
