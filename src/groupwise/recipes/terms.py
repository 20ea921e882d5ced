"""Terms that several recipes are made of: a step's return, the credit of whole attempts, and the levels of history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from groupwise.advantages import (
    Deviation,
    EpisodeReturn,
    NoScale,
    Penalised,
    PenalisedRefusals,
    Relative,
    ReturnToGo,
    Term,
)
from groupwise.core.parts.slots import ScalePart, SignalPart
from groupwise.groups import ByHistory, ByTask
from groupwise.groups.peers import Peers

ScaleName = Literal["std", "none"]
"""Whether credit is divided by the deviation of its group."""


def make_step_return(*, gamma: float, invalid_penalty: float, refused_penalty: float) -> Penalised | PenalisedRefusals:
    """Make the discounted return of a step, less the penalties that stay on it."""
    returns = Penalised(of=ReturnToGo(gamma=gamma), penalty=invalid_penalty)
    return PenalisedRefusals(of=returns, penalty=refused_penalty) if refused_penalty else returns


def make_episode_term(*, scale: ScaleName, invalid_penalty: float, reference: bool) -> Relative:
    """Make the episode credit that GiGPO adds and HGPO may blend in."""
    spread = Deviation(ddof=1) if scale == "std" else NoScale()
    if reference:
        score = Penalised(of=EpisodeReturn(), penalty=invalid_penalty)
        return Relative(by=ByTask(), of=score, scale=spread, average="step", alone="raw")
    return Relative(by=ByTask(), of=EpisodeReturn(), scale=spread)


def make_history_terms(
    weights: Sequence[float],
    of: SignalPart,
    scale: ScalePart,
    mixed_scale: ScalePart | None = None,
    peers: Peers = "any",
) -> tuple[Term, ...]:
    """Make a term for each level: steps of equal state and k states before it, weighed by the k-th weight."""
    return tuple(
        Term(
            weight=weight,
            of=Relative(
                by=ByHistory(depth=k, peers=peers), of=of, scale=scale, mixed_scale=mixed_scale, average="step"
            ),
        )
        for k, weight in enumerate(weights)
    )
