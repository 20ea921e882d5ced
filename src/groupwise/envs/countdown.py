"""Countdown: make a target from given numbers with + - * /, in one answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.facts import write_checks
from groupwise.envs.kit.panel import PanelSizes, Proposal, check_env, choose_split, draw_panels
from groupwise.envs.kit.progress import SteppedEnvironment, show_text
from groupwise.envs.kit.words import vocabulary_of
from groupwise.parts.part import Part
from groupwise.system.errors import GroupwiseError

ENV = "countdown"
SIZES = PanelSizes(train=2000, validation=200, test=400)


class Countdown(Part, slot="env", self_contained=True):
    """Arithmetic with a verifier: an expression that uses every given number once and makes the target.

    One step: the action is the expression, such as "(8 - 2) * 4". It is read by a small grammar, never evaluated as
    code, and computed exactly. An answer that cannot be read, or uses other numbers than the given ones, is refused.
    The facts of the step say what the expression came to (`answer`: two expressions of one value are one answer).
    """

    writes: ClassVar[frozenset[str]] = frozenset({"answer", "gold_answer", "exact", "expression", "checks"})
    num_numbers: Annotated[int, Field(ge=2, le=5)] = 3
    """Numbers that are given."""
    largest_number: Annotated[int, Field(ge=2, le=100)] = 12
    """The largest number that is given."""
    largest_target: Annotated[int, Field(ge=2, le=1000)] = 100
    """The largest target."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the attempt, so one step is all there is."""
    success_reward: float = 1.0
    """Reward of a right answer."""

    @model_validator(mode="after")
    def _wide_enough(self) -> Countdown:
        if self.largest_number**self.num_numbers < 100:
            raise ValueError("so few different tasks cannot fill three panels; raise largest_number or num_numbers")
        return self

    def panel(self, split: str) -> tuple[Task, ...]:
        settings = self.num_numbers, self.largest_number, self.largest_target
        return choose_split(draw_panels(ENV, _draw, *settings, sizes=SIZES), split)

    def open(self, task: Task) -> CountdownEnvironment:
        check_env(task, ENV)
        return CountdownEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = (str(number) for number in range(max(self.largest_number, self.largest_target) + 1))
        return vocabulary_of((self.instruction(), "Make from, . Right. Wrong. That is not an answer.", *numbers))

    def instruction(self) -> str:
        return "Write an expression that uses each number once, with + - * / and ( )."


class CountdownEnvironment(SteppedEnvironment):
    """One attempt at a target."""

    def __init__(self, task: Task, part: Countdown) -> None:
        super().__init__(task, part.max_steps)
        self._part = part
        self._numbers: list[int] = task.payload["numbers"]
        self._target: int = task.payload["target"]
        self._progress.observation = show_text(f"Make {self._target} from {', '.join(map(str, self._numbers))}.")

    def act(self, action: str) -> Outcome:
        self._progress.step()
        expression = check_expression(action, numbers=self._numbers, target=self._target)
        facts = self._tell_facts(expression)
        if expression is None or not expression.fits:
            seen = show_text("That is not an answer.")
            return self._progress.outcome(seen, success=False, accepted=False, facts=facts)
        seen = show_text("Right." if expression.is_right else "Wrong.")
        reward = self._part.success_reward if expression.is_right else 0.0
        return self._progress.outcome(seen, success=expression.is_right, reward=reward, facts=facts)

    def _tell_facts(self, expression: CheckedExpression | None) -> dict[str, Any]:
        gold = {"gold_answer": str(self._target)}
        if expression is None:
            return {**gold, "checks": write_checks(read=False)}
        if not expression.fits:
            return {**gold, "expression": expression.text, "checks": write_checks(read=True, fits=False)}
        is_right = expression.is_right
        checks = write_checks(read=True, fits=True, right=is_right)
        answer = {"answer": str(expression.value), "exact": is_right}
        return {**answer, **gold, "expression": expression.text, "checks": checks}

    def expert(self) -> str | None:
        return None if self._progress.ended else find_expression(self._numbers, self._target)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedExpression:
    """An answer that could be read.

    Worked example: "(8-2) * 4" for 24 from 2, 4, 8 has the text "(8 - 2) * 4" and the value 24; it fits and is right.
    """

    text: str
    """The expression, with single spaces."""
    value: Fraction
    """What it comes to."""
    fits: bool
    """Whether it uses the given numbers, each once."""
    is_right: bool
    """Whether it fits and makes the target."""


def check_expression(answer: str, *, numbers: list[int], target: int) -> CheckedExpression | None:
    """Read an answer and check it; None where it is no expression."""
    try:
        value, used = evaluate(answer)
    except ExpressionError:
        return None
    fits = sorted(used) == sorted(numbers)
    return CheckedExpression(text=format_expression(answer), value=value, fits=fits, is_right=fits and value == target)


def _draw(num_numbers: int, largest_number: int, largest_target: int, index: int) -> Proposal | None:
    """Join random numbers by random operations; the target is what comes out, if it is whole and in range."""
    draws = Draws(ENV, num_numbers, largest_number, largest_target, index)
    numbers = [1 + draws.below(largest_number) for _ in range(num_numbers)]
    expression = str(numbers[0])
    for number in numbers[1:]:
        expression = f"({expression} {draws.pick(OPERATIONS)} {number})"
    value, _ = evaluate(expression)
    if value.denominator != 1 or not 1 <= value <= largest_target:
        return None
    # Sorted: the order must not tell the solution, nor make two tasks of one.
    return Proposal(payload={"numbers": sorted(numbers), "target": int(value)})


# Arithmetic of the countdown: reads an expression without `eval`, and finds one that makes the target.

MAX_EXPRESSION_CHARACTERS = 200
"""Characters an answer may have."""
MAX_OPEN_PARENTHESES = 50
"""Parentheses that may be open at a time."""
TOKEN = re.compile(r"\s*(?:([0-9]{1,9})|([-+*/()]))")
OPERATIONS = "+-*/"


class ExpressionError(GroupwiseError):
    """A text is not an expression of whole numbers, + - * / and parentheses."""


def evaluate(text: str) -> tuple[Fraction, list[int]]:
    """The value of an expression, and the numbers it uses, in order.

    >>> evaluate("(8 - 2) / 4")
    (Fraction(3, 2), [8, 2, 4])
    """
    reader = _Reader(_split_tokens(text))
    value = reader.read_total()
    if reader.peek():
        raise ExpressionError(f"found {reader.peek()!r} after the end of the expression; close it first")
    return value, reader.numbers


def format_expression(text: str) -> str:
    """An expression with single spaces, none inside parentheses.

    >>> format_expression("( 8-2)/4")
    '(8 - 2) / 4'
    """
    return " ".join(_split_tokens(text)).replace("( ", "(").replace(" )", ")")


def find_expression(numbers: Sequence[int], target: int) -> str | None:
    """An expression that uses every number once and makes the target, or None."""
    return _combine([(Fraction(number), str(number)) for number in numbers], target)


class _Reader:
    """Reads tokens by the grammar: total = product {(+|-) product}, product = atom {(*|/) atom}."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._next, self._open = tokens, 0, 0
        self.numbers: list[int] = []

    def peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def read_total(self) -> Fraction:
        value = self._read_product()
        while self.peek() in ("+", "-"):
            value = apply_operation(self._take(), value, self._read_product())
        return value

    def _read_product(self) -> Fraction:
        value = self._read_atom()
        while self.peek() in ("*", "/"):
            value = apply_operation(self._take(), value, self._read_atom())
        return value

    def _read_atom(self) -> Fraction:
        token = self._take()
        if token.isdigit():
            self.numbers.append(int(token))
            return Fraction(int(token))
        if token != "(":
            raise ExpressionError(f"found {token or 'the end'!r} where a number should be; write numbers and ( )")
        self._open += 1
        if self._open > MAX_OPEN_PARENTHESES:
            raise ExpressionError(f"more than {MAX_OPEN_PARENTHESES} parentheses are open; use fewer")
        value = self.read_total()
        if self._take() != ")":
            raise ExpressionError("a parenthesis is not closed; add )")
        self._open -= 1
        return value

    def _take(self) -> str:
        token = self.peek()
        self._next += 1
        return token


def apply_operation(operation: str, left: Fraction, right: Fraction) -> Fraction:
    """One step of arithmetic, exact."""
    if operation == "/":
        if right == 0:
            raise ExpressionError("the expression divides by zero; change it")
        return left / right
    return left + right if operation == "+" else left - right if operation == "-" else left * right


def _split_tokens(text: str) -> list[str]:
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise ExpressionError(f"the expression has {len(text)} characters; use at most {MAX_EXPRESSION_CHARACTERS}")
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(f"found {text[position:].strip()[0]!r}; write numbers, + - * / and ( ) only")
        tokens.append(match[1] or match[2])
        position = match.end()
    return tokens


def _combine(values: list[tuple[Fraction, str]], target: int) -> str | None:
    """Join two of the values in every way, until one is left that is the target."""
    if len(values) == 1:
        return values[0][1] if values[0][0] == target else None
    for first, second in combinations(range(len(values)), 2):
        rest = [value for index, value in enumerate(values) if index not in (first, second)]
        for left, right in ((values[first], values[second]), (values[second], values[first])):
            for operation in OPERATIONS:
                if operation == "/" and right[0] == 0:
                    continue
                joined = (apply_operation(operation, left[0], right[0]), f"({left[1]} {operation} {right[1]})")
                expression = _combine([*rest, joined], target)
                if expression is not None:
                    return expression
    return None
