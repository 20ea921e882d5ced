"""Lines of a worked sum: how an answer is cut into them, read and checked."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from groupwise.envs.kit.words import split_words

LINE_END = ";"
"""What ends a line; a new line does too."""
_LINE = re.compile(r"([0-9]{1,9})\s*\+\s*([0-9]{1,9})\s*=\s*([0-9]{1,9})")
_ANSWER = re.compile(r"answer\s+([0-9]{1,9})")
_END = re.compile(r"[;\n]")
_BETWEEN_LINES = LINE_END + string.whitespace


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedAnswer:
    """An answer, line by line; the last line says the total.

    Worked example: to 4 + 7 + 2, "4 + 7 = 12 ; 12 + 2 = 14 ; answer 14" has a wrong first line; the others are right
    by themselves, and none is on track.
    """

    total: int | None
    """What the last line says; None = it says no total."""
    is_right: tuple[bool, ...]
    """Of each line, whether it goes on from the result before it with the next number, and adds them up rightly."""
    is_on_track: tuple[bool, ...]
    """Of each line, whether its result is what the numbers so far come to, or the total of the last line."""
    ends: tuple[int, ...]
    """Words up to the end of each line, the sign that ends it included."""


def write_answer(terms: Sequence[int], results: Sequence[int], total: int) -> str:
    """An answer whose lines have given results.

    >>> write_answer((4, 7, 2), (11, 13), 13)
    '4 + 7 = 11 ; 11 + 2 = 13 ; answer 13'
    """
    lines, before = [], terms[0]
    for term, result in zip(terms[1:], results, strict=False):
        lines.append(f"{before} + {term} = {result} {LINE_END}")
        before = result
    return " ".join([*lines, f"answer {total}"])


def check_answer(answer: str, terms: Sequence[int]) -> CheckedAnswer:
    """Check an answer to the sum of some numbers line by line; any text can be checked."""
    texts = _cut_lines(answer)
    before, num_added, total = terms[0], 1, None
    is_right, is_on_track = [], []
    for number, text in enumerate(texts):
        line = text.strip(_BETWEEN_LINES)
        said = _ANSWER.fullmatch(line) if number == len(texts) - 1 else None
        if said is not None:
            total = int(said[1])
            is_right.append(total == before + sum(terms[num_added:]))
            is_on_track.append(total == sum(terms))
            continue
        match = _LINE.fullmatch(line)
        if match is None or num_added == len(terms):
            is_right.append(False)
            is_on_track.append(False)
            continue
        left, term, result = (int(digits) for digits in match.groups())
        is_right.append(left == before and term == terms[num_added] and result == left + term)
        num_added, before = num_added + 1, result
        is_on_track.append(result == sum(terms[:num_added]))
    ends, num_words = [], 0
    for text in texts:
        num_words += len(split_words(text))
        ends.append(num_words)
    return CheckedAnswer(total=total, is_right=tuple(is_right), is_on_track=tuple(is_on_track), ends=tuple(ends))


def _cut_lines(answer: str) -> list[str]:
    """The lines of an answer, each with the sign that ends it; what has no word but ; belongs to a line beside it."""
    lowered = answer.lower()
    starts = [0, *(match.end() for match in _END.finditer(lowered)), len(lowered)]
    lines, before = [], ""
    for begin, end in pairwise(starts):
        text = lowered[begin:end]
        if any(word != LINE_END for word in split_words(text)):
            lines.append(before + text)
            before = ""
        elif lines:
            lines[-1] += text
        else:
            before += text
    return lines
