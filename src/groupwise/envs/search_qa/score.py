"""Whether an answer is right: exact match and F1 after SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """A text without case, punctuation, articles and extra spaces.

    >>> normalise("The  Amber-Sea.")
    'ambersea'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, right: Sequence[str]) -> bool:
    """Whether an answer is one of the right ones, once both are normalised."""
    return normalise(answer) in {normalise(accepted) for accepted in right}


def f1(answer: str, right: Sequence[str]) -> float:
    """The best overlap of words with a right answer: the harmonic mean of precision and recall.

    >>> round(f1("the Amber Sea in the north", ["the Amber Sea"]), 3)
    0.667
    """
    return max((_overlap(normalise(answer).split(), normalise(accepted).split()) for accepted in right), default=0.0)


def _overlap(answer: Sequence[str], right: Sequence[str]) -> float:
    if not answer or not right:
        return float(answer == right)
    shared = sum((Counter(answer) & Counter(right)).values())
    return 2 * shared / (len(answer) + len(right))
