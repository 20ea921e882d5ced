"""A KL to the reference policy in the reward, as RLOO, P3O and REINFORCE++ publish it: the parts that each needs."""

from __future__ import annotations

from typing import Any

from groupwise.advantages.token_credit import TokenReturn, WhitenedTokens


def take_kl_off_answers(weight: float) -> dict[str, Any]:
    """Parts that take the KL of each answer off what it earned, before anybody is compared; none where it weighs 0."""
    if not weight:
        return {}
    return {"measures": ("reference_score",), "shapers": ({"kind": "reference_kl", "weight": weight},)}


def take_kl_off_tokens(weight: float, *, gamma: float, eps: float) -> dict[str, Any]:
    """Parts that take the KL off each token, and whiten the returns of tokens; none where it weighs 0."""
    if not weight:
        return {}
    return {
        "measures": ({"kind": "reference_score", "by_token": True},),
        "token_credit": WhitenedTokens(of=TokenReturn(gamma=gamma, kl=weight), eps=eps),
    }
