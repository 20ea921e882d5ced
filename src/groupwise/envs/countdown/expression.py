"""Arithmetic of the countdown: reads an expression without `eval`, and finds one that makes the target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

from groupwise.core.errors import GroupwiseError

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
