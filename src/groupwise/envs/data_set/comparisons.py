"""How an answer is compared with the stored one, in the run's own process: as text, by its words, as a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from groupwise.envs.kit.answers import are_same_words

# Currency, percent and commas between thousands are part of how a number is written.
_NUMBER = re.compile(r"([-+]?)\s?\$?\s?(\d[\d,]*(?:\.\d+)?|\.\d+)\s?(?:/\s?(\d+))?\s?%?\.?")


def is_same_text(answer: str, stored: str) -> bool:
    """Whether two answers are the same text, but for spaces around them."""
    return answer.strip() == stored.strip()


def is_same_number(answer: str, stored: str) -> bool:
    """Whether two answers are the same number, however they write it; text that is no number equals nothing.

    >>> is_same_number("$1,200.0", "1200"), is_same_number("1/2", "0.5"), is_same_number("about 3", "3")
    (True, True, False)
    """
    number = read_number(answer)
    return number is not None and number == read_number(stored)


def read_number(text: str) -> Fraction | None:
    """The number that a text is, exactly; None where it is none."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or (match[3] and not int(match[3])):
        return None
    number = Fraction(match[2].replace(",", "")) / int(match[3] or 1)
    return -number if match[1] == "-" else number


COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "words": are_same_words,
    "text": is_same_text,
    "number": is_same_number,
}
"""Verifiers that compare in place, by name."""
