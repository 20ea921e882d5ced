"""BM25 search over texts, by the package bm25s."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from groupwise.envs.kit.packages import import_package
from groupwise.envs.kit.words import split_words

K1, B = 0.9, 0.4
"""Saturation and length correction, as Pyserini's searcher sets them."""
STOP_WORDS = frozenset(
    split_words(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
        "this to was will with"
    )
)
"""Words that a search ignores, as in Lucene's English analyser."""


class Bm25:
    """An index that ranks texts by the words they share with a query.

    Choices: Lucene's variant of the score. Words are not stemmed. Equal scores keep the order of the texts, so a query
    gives the same list on every machine.
    """

    def __init__(self, texts: Sequence[str], *, needed_by: str, extra: str) -> None:
        bm25s = import_package(needed_by, "bm25s", extra=extra)
        # float64, so that rounding does not decide the order of the results.
        self._index = bm25s.BM25(method="lucene", k1=K1, b=B, dtype="float64")
        self._index.index([_split_terms(text) for text in texts], show_progress=False)

    def search(self, query: str, count: int) -> list[int]:
        terms = _split_terms(query)
        if not terms:
            return []
        scores = self._index.get_scores(terms)
        best = np.argsort(-scores, kind="stable")[:count]
        return [int(number) for number in best if scores[number] > 0]


def _split_terms(text: str) -> list[str]:
    return [word for word in split_words(text) if word.isalnum() and word not in STOP_WORDS]
