"""The score in what a judge says: a number after a pattern, or the word that it chose."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

NUMBER_AFTER_SCORE = r"(?i)\bscore\b[\s\"'*:=]{0,8}(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)"
"""Where a score stands unless a run file says otherwise: after the word, as in "score: 7" or "**Score:** 6.5"."""


def read_number(text: str, pattern: str, *, lowest: float | None, highest: float | None) -> float | str:
    """The last number that a pattern's group finds, or a few words about why there is none.

    >>> read_number("Not bad. Score: 7", NUMBER_AFTER_SCORE, lowest=0, highest=10)
    7.0
    >>> read_number("score: 12", NUMBER_AFTER_SCORE, lowest=0, highest=10)
    'the score 12 is not from 0 to 10'
    """
    matches = re.findall(pattern, text)
    if not matches:
        return "it has no score where `pattern` looks for one"
    try:
        score = float(matches[-1])
    except ValueError:
        return "what `pattern` finds is no number"
    if not math.isfinite(score):
        return "the score is not finite"
    if (lowest is not None and score < lowest) or (highest is not None and score > highest):
        low, high = ("anything" if bound is None else f"{bound:g}" for bound in (lowest, highest))
        return f"the score {score:g} is not from {low} to {high}"
    return score


def read_choice(text: str, choices: Sequence[tuple[str, float]]) -> float | str:
    """The score of the choice that comes last in a text, in any case, or a few words about why there is none.

    >>> read_choice("No... rather: Yes.", [("yes", 1.0), ("no", 0.0)])
    1.0
    """
    scores = {word.casefold(): score for word, score in choices}
    words = "|".join(re.escape(word) for word in sorted(scores, key=len, reverse=True))
    said = re.findall(rf"(?<!\w)(?:{words})(?!\w)", text.casefold())
    return scores[said[-1]] if said else "it is none of the `choices`"
