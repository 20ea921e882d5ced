"""Answers to one request by two ways of computing: equal to the last token, or but for rounding.

A token follows from a draw and a distribution. Where a second way through the model (other rows beside it, a prompt
read in parts) moves log-probs by more than float32 rounds, a draw at the border of two tokens falls on the other
side now and then, and the rest of the response is another one. Nobody can promise the tokens then; what can be promised
is that log-probs of what both ways said agree, and that tokens part no more often than borders are met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from groupwise.core.rules import NotTestedError
from groupwise.engines.engine import Generation, Request

EXACT_GAP = 0.01
"""Nats: engines whose log-probs may differ by no more are held to every token."""


def find_other_tokens(requests: Sequence[Request], some: Sequence[Generation], others: Sequence[Generation]) -> str:
    """The first request that was answered in two ways; empty = none was."""
    for request, answer, other in zip(requests, some, others, strict=True):
        if answer.response_ids != other.response_ids:
            return f"seed {request.seed} gave {answer.response_ids}, and {other.response_ids}"
    return ""


def find_difference(
    requests: Sequence[Request], some: Sequence[Generation], others: Sequence[Generation], *, max_gap: float
) -> str:
    """Where two ways of answering differ in tokens, by more than rounding where `max_gap` is wide; empty = nowhere."""
    if max_gap <= EXACT_GAP:
        return find_other_tokens(requests, some, others)
    gap = find_shared_gap(some, others)
    if not gap <= max_gap:
        return f"the same tokens have log-probs that differ by up to {gap:.3g} nats (allowed {max_gap:g})"
    return _find_many_partings(some, others)


def find_shared_gap(some: Sequence[Generation], others: Sequence[Generation]) -> float:
    """The largest difference of log-probs up to where responses part."""
    shared = _count_shared(some, others)
    return find_largest_gap(_cut_logps(some, shared), _cut_logps(others, shared))


def find_largest_gap(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """The largest difference of two lists of log-probs; NaN where one is none, infinite where they are not as many."""
    if [len(logps) for logps in some] != [len(logps) for logps in others]:
        return math.inf
    gaps = [abs(a - b) for logps, other in zip(some, others, strict=True) for a, b in zip(logps, other, strict=True)]
    return math.nan if any(map(math.isnan, gaps)) else max(gaps, default=0.0)


def _find_many_partings(some: Sequence[Generation], others: Sequence[Generation]) -> str:
    """Whether responses part more often than rounding explains.

    Draws of their own would part with the chance that two tokens of a distribution differ; half of that is allowed.
    """
    shared = _count_shared(some, others)
    parted = [
        num < min(len(answer.response_ids), len(other.response_ids))
        for num, answer, other in zip(shared, some, others, strict=True)
    ]
    compared = [num + has_parted for num, has_parted in zip(shared, parted, strict=True)]
    chances = [math.exp(logp) for logps in _cut_logps(others, compared) for logp in logps]
    allowed = 1 + sum(1 - chance for chance in chances) / 2
    if sum(parted) <= allowed:
        return ""
    pairs = zip(_cut_logps(some, shared), _cut_logps(others, shared), strict=True)
    gaps = [abs(a - b) for logps, other in pairs for a, b in zip(logps, other, strict=True)]
    if sum(gaps) > sum(chances):
        raise NotTestedError("rounding moves log-probs by more than tokens are likely, so that none can be compared")
    return (
        f"{sum(parted)} of {len(parted)} responses parted within {len(chances)} tokens, about as often as with other "
        f"seeds; rounding explains up to {allowed:.0f}"
    )


def _cut_logps(answers: Sequence[Generation], lengths: Sequence[int]) -> list[tuple[float, ...]]:
    return [tuple(answer.logp[:length]) for answer, length in zip(answers, lengths, strict=True)]


def _count_shared(some: Sequence[Generation], others: Sequence[Generation]) -> list[int]:
    """How many tokens each two responses have in common before they part."""
    counts: list[int] = []
    for answer, other in zip(some, others, strict=True):
        pairs = list(zip(answer.response_ids, other.response_ids, strict=False))
        counts.append(next((place for place, (token, another) in enumerate(pairs) if token != another), len(pairs)))
    return counts
