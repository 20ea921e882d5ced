"""Answers in a response: the form that is asked for, how it is read, compared, and how an expert would say it."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

from groupwise.envs.kit.tags import find_tagged_parts
from groupwise.envs.kit.words import split_words

Form = Literal["whole", "last_line", "last_number", "tags", "boxed"]
"""Where a response says its answer: all of it, its last line or number, between answer tags, or in a LaTeX box."""
ASKED: dict[Form, str] = {
    "whole": "Answer with the final answer alone.",
    "last_line": "Write the final answer alone on the last line.",
    "last_number": "End with the final answer, a number.",
    "tags": "Put the final answer between <answer> and </answer>.",
    "boxed": "Put the final answer in \\boxed{}.",
}
"""The sentence of an instruction that asks for each form."""
MAX_ANSWER_CHARACTERS = 2000
"""A longer answer is none, unless the stored one is long too."""

# A minus after a digit or a letter is an operation, not a sign.
_LAST_NUMBER = re.compile(r"(?:(?<![\w.])-)?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
# A word-level tokenizer puts spaces between signs, so they are allowed there.
_BOX = re.compile(r"\\\s*+boxed\s*+\{")
_BRACE = re.compile(r"[{}]")
_NUMBER = re.compile(r"[-+]?\s?\$?\d[\d,.]*(?:\s?/\s?\d+)?\s?%?")
# Currency, percent and commas between thousands are part of how a number is written.
_WRITTEN_NUMBER = re.compile(r"([-+]?)\s?\$?\s?(\d[\d,]*(?:\.\d+)?|\.\d+)\s?(?:/\s?(\d+))?\s?%?\.?")


def read_answer(response: str, form: Form) -> str:
    """The answer in a response; empty where it does not have the form. Of several, the last counts.

    >>> read_answer("Half of 8 is <answer>4</answer>.", "tags")
    '4'
    """
    if form == "whole":
        return response.strip()
    if form == "last_line":
        lines = response.strip().splitlines()
        return lines[-1].strip() if lines else ""
    if form == "last_number":
        numbers = _LAST_NUMBER.findall(response)
        return str(numbers[-1]).replace(",", "") if numbers else ""
    if form == "tags":
        parts = [part for _, part in find_tagged_parts(response, "answer")]
        return parts[-1].strip() if parts else ""
    return find_last_boxed(response)


def find_last_boxed(text: str) -> str:
    r"""What stands in the last LaTeX box, braces within it included; empty where there is none, or it is not closed.

    >>> find_last_boxed(r"so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    starts = [match.end() for match in _BOX.finditer(text)]
    if not starts:
        return ""
    depth = 1
    for brace in _BRACE.finditer(text, starts[-1]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[starts[-1] : brace.start()].strip()
    return ""


def say_answer(answer: str, form: Form) -> str:
    """A response that says an answer: `read_answer` gives it back."""
    if form == "tags":
        return f"<answer>{answer}</answer>"
    return f"\\boxed{{{answer}}}" if form == "boxed" else answer


def is_answer(answer: str, stored: str | None, form: Form) -> bool:
    """Whether what was read can be an answer at all, right or wrong.

    Between tags or in a box anything can be, and a number that was found is one. Where the response itself is read, an
    answer has the shape of the stored one: a number where that is a number, as many words otherwise, in ASCII where
    that is.
    """
    if not answer or len(answer) > max(MAX_ANSWER_CHARACTERS, 4 * len(stored or "")):
        return False
    if form not in ("whole", "last_line") or stored is None:
        return True
    if _NUMBER.fullmatch(stored):
        return bool(_NUMBER.fullmatch(answer))
    return len(answer.split()) == len(stored.split()) and (answer.isascii() or not stored.isascii())


def are_same_words(answer: str, stored: str | None) -> bool:
    """Whether two answers differ at most in case and spacing.

    >>> are_same_words("- 3", "-3"), are_same_words("yes", "Yes"), are_same_words("3", "-3")
    (True, True, False)
    """
    return stored is not None and split_words(answer) == split_words(stored)


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
    match = _WRITTEN_NUMBER.fullmatch(text.strip())
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
