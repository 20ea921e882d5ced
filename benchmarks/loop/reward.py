"""What both trainers pay for a response. It stands alone, so that an interpreter without groupwise can import it."""

from __future__ import annotations

import re
from functools import cache


def score_mentions(said: str, asked: str) -> float:
    """Share of a response's words that stand in what was asked: rollouts of a fresh model differ in it."""
    words, known = said.split(), _words(asked)
    return sum(word in known for word in words) / max(len(words), 1)


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall("[a-z0-9]+", text.lower()))
