"""A question with a verifier: one response, one result, and the rollout is over."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

from groupwise.data.records import Task
from groupwise.envs.environment import Outcome
from groupwise.envs.kit.progress import SteppedEnvironment, show_text
from groupwise.envs.kit.words import split_words
from groupwise.envs.verifier.verifier import Verdict

NO_ANSWER = "That is not an answer."
SENTENCES = f"Right. Wrong. {NO_ANSWER}"
"""The texts after a response."""
WITHOUT_VERDICT = "Answered."
"""The text after a response that only the rewards of the run judge."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, its stored answer and its verifier."""

    text: str
    stored: str | None
    """The stored answer; None = there is none."""
    form: Form
    judge: Callable[[str], Verdict] | None
    """The verifier; None = only the rewards of the run judge, and any response is an answer."""
    solved_at: float = 1.0
    """The smallest score that counts as solved."""
    allow_partial: bool = True
    """Whether a lower score is rewarded too."""
    match_words: bool = False
    """Whether an answer with the words of the stored one counts as the stored one."""


def open_question(task: Task, question: Question, *, max_steps: int) -> QuestionEnvironment:
    kind = QuestionEnvironment if question.stored is None else AnsweredQuestionEnvironment
    return kind(task, question, max_steps)


class QuestionEnvironment(SteppedEnvironment):
    """One rollout of a question. Without a result it is a failure with reward 0, and its `note` says why."""

    def __init__(self, task: Task, question: Question, max_steps: int) -> None:
        super().__init__(task, max_steps)
        self._question = question
        self._progress.observation = show_text(question.text)

    def act(self, action: str) -> Outcome:
        self._progress.step()
        question = self._question
        if question.judge is None:
            is_said = bool(action.strip())
            return self._progress.outcome(
                show_text(WITHOUT_VERDICT if is_said else NO_ANSWER), accepted=is_said, ended=True
            )
        answer = read_answer(action, question.form)
        if question.match_words and are_same_words(answer, question.stored):
            answer = question.stored or ""
        if not is_answer(answer, question.stored, question.form):
            return self._progress.outcome(show_text(NO_ANSWER), success=False, accepted=False)
        verdict = question.judge(answer)
        solved = not verdict.reason and verdict.score >= question.solved_at
        reward = verdict.score if solved or question.allow_partial else 0.0
        seen = show_text("Right." if solved else "Wrong.")
        return self._progress.outcome(seen, success=solved, reward=reward, note=verdict.reason)


class AnsweredQuestionEnvironment(QuestionEnvironment):
    """One rollout of a question whose answer is stored: the expert says it."""

    def expert(self) -> str | None:
        stored = self._question.stored
        return None if self._progress.ended or stored is None else say_answer(stored, self._question.form)


# Answers in a response: the form that is asked for, how it is read, compared, and how an expert would say it.

Form = Literal["whole", "last_line", "last_number", "tags", "boxed"]
"""Where a response has its answer: all of it, its last line or number, between answer tags, or in a LaTeX box."""
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
    """The last answer in a response; empty if it does not have the form.

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
    r"""The content of the last LaTeX box, with inner braces; empty if there is none, or if it is not closed.

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
    """Whether a text can be an answer at all, right or wrong.

    Between tags or in a box any text can, and every found number is one. If the response itself is the answer, it needs
    the shape of the stored one: a number if that is a number; else as many words, and ASCII if that is ASCII.
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
    return answer.strip() == stored.strip()


def is_same_number(answer: str, stored: str) -> bool:
    """Whether two answers are the same number in any notation; text that is not a number equals nothing.

    >>> is_same_number("$1,200.0", "1200"), is_same_number("1/2", "0.5"), is_same_number("about 3", "3")
    (True, True, False)
    """
    number = read_number(answer)
    return number is not None and number == read_number(stored)


def read_number(text: str) -> Fraction | None:
    """The exact number that a text is; None if it is not a number."""
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


# Parts of a response between tags, found in one pass: a pattern that searches from every opening tag takes
# quadratic time if a model repeats an opening tag.


def find_tagged_parts(text: str, *names: str) -> Iterator[tuple[str, str]]:
    """The parts between an opening tag of one of the names and the next closing tag of the same, from the left.

    Names are in lower case, tags in any. A word-level tokenizer puts spaces between signs, so they are allowed there.

    >>> list(find_tagged_parts("<b>x <i>y</ i > z</b> <i>w</i>", "i"))
    [('i', 'y'), ('i', 'w')]
    """
    # Folded, not only lowered: a pattern without case takes the long s of old prints for an s.
    tags = [(match[2].casefold(), bool(match[1]), match.start(), match.end()) for match in _tags(names).finditer(text)]
    closing: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for name, closes, start, end in tags:
        if closes:
            closing[name].append((start, end))
    done = 0
    for name, closes, start, end in tags:
        if closes or start < done:
            continue
        following = bisect_left(closing[name], (end, end))
        if following < len(closing[name]):
            stop, done = closing[name][following]
            yield name, text[end:stop]


@cache
def _tags(names: tuple[str, ...]) -> re.Pattern[str]:
    # Possessive: spaces that were ignored once are not tried again.
    return re.compile(rf"<\s*+(/\s*+)?({'|'.join(names)})\s*+>", re.IGNORECASE)
