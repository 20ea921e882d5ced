"""Terms that several methods share: a step's return, the advantage of whole rollouts, and the levels of history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from groupwise.credit import (
    ByHistory,
    ByTask,
    Deviation,
    EpisodeReturn,
    NoScale,
    Peers,
    Penalised,
    PenalisedRefusals,
    Relative,
    ReturnToGo,
    Term,
    TokenReturn,
    WhitenedTokens,
)
from groupwise.losses import AllPairs, BestAgainstWorst
from groupwise.parts import ScalePart, SignalPart

ScaleName = Literal["std", "none"]
"""Whether advantages are divided by the standard deviation of their group."""


def make_step_return(*, gamma: float, invalid_penalty: float, refused_penalty: float) -> Penalised | PenalisedRefusals:
    returns = Penalised(of=ReturnToGo(gamma=gamma), penalty=invalid_penalty)
    return PenalisedRefusals(of=returns, penalty=refused_penalty) if refused_penalty else returns


def make_episode_term(*, scale: ScaleName, invalid_penalty: float, reference: bool) -> Relative:
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
    """One term per level: steps with equal state and k states before it, at the k-th weight."""
    return tuple(
        Term(
            weight=weight,
            of=Relative(
                by=ByHistory(depth=k, peers=peers), of=of, scale=scale, mixed_scale=mixed_scale, average="step"
            ),
        )
        for k, weight in enumerate(weights)
    )


Pairs = Literal["best_against_worst", "all"]


def choose_pairs(pairs: Pairs) -> BestAgainstWorst | AllPairs:
    return BestAgainstWorst() if pairs == "best_against_worst" else AllPairs()


# A KL to the reference policy in the reward, as RLOO, P3O and REINFORCE++ publish it: the parts that each needs.


def take_kl_off_answers(weight: float) -> dict[str, Any]:
    """Parts that subtract the KL of each response from its reward, before the comparison; none if the weight is 0."""
    if not weight:
        return {}
    return {"scorers": ("reference_score",), "shapers": ({"kind": "reference_kl", "weight": weight},)}


def take_kl_off_tokens(weight: float, *, gamma: float, eps: float) -> dict[str, Any]:
    """Parts that subtract the KL per token, and whiten the returns of tokens; none if the weight is 0."""
    if not weight:
        return {}
    return {
        "scorers": ({"kind": "reference_score", "by_token": True},),
        "token_credit": WhitenedTokens(of=TokenReturn(gamma=gamma, kl=weight), eps=eps),
    }
