"""Words of the word-level tokenizer, vocabularies, and sentences that environments share.

A word is a lower-case alphanumeric run, or a single punctuation character.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

WORD = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")
MAX_COLLECTED_WORDS = 20_000
"""Words of a vocabulary that is collected from questions and answers; the most frequent stay."""
NOTHING_HAPPENS = "Nothing happens."
"""The text after an invalid action."""


def split_words(text: str) -> list[str]:
    """Cut a text into words.

    >>> split_words("You see a mug 1.")
    ['you', 'see', 'a', 'mug', '1', '.']
    """
    return WORD.findall(text.lower())


def vocabulary_of(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({word for text in texts for word in split_words(text)}))


def collect_vocabulary(texts: Iterable[str], always: str) -> tuple[str, ...]:
    """The `MAX_COLLECTED_WORDS` most frequent words of many texts, and all words of `always`; sorted."""
    counts = Counter(word for text in texts for word in split_words(text))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return tuple(sorted({*ranked[:MAX_COLLECTED_WORDS], *split_words(always)}))


def to_one_line(text: str) -> str:
    return " ".join(text.split())


def prepend_goal(goal: str, text: str) -> str:
    return f"Task: {goal} {text}"
