"""Words as the word-level tokenizer sees them: lower-case alphanumeric runs, and single punctuation characters."""

from __future__ import annotations

import re
from collections.abc import Iterable

WORD = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")


def words(text: str) -> list[str]:
    """Cut a text into words.

    >>> words("You see a mug 1.")
    ['you', 'see', 'a', 'mug', '1', '.']
    """
    return WORD.findall(text.lower())


def vocabulary_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Every word of some texts, once, in order."""
    return tuple(sorted({word for text in texts for word in words(text)}))


def with_goal(goal: str, text: str) -> str:
    """A text with the goal before it, for prompts that have no other place for it."""
    return f"Task: {goal} {text}"
