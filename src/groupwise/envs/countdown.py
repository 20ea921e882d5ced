"""Countdown: make a target from given numbers with + - * /, in one answer."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, combinations
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.info import write_checks
from groupwise.envs.kit.progress import SteppedEnvironment, show_text
from groupwise.envs.kit.task_set import Proposal, TaskSetSizes, check_env, choose_split, draw_task_sets
from groupwise.envs.kit.words import vocabulary_of
from groupwise.parts.part import Part

ENV = "countdown"
SIZES = TaskSetSizes(train=2000, validation=200, test=400)


class Countdown(Part, slot="env", self_contained=True):
    """Arithmetic with a verifier: an expression that uses every given number once and makes the target.

    One step: the action is the expression, such as "(8 - 2) * 4". A small grammar reads it and computes it exactly; it
    is never evaluated as code. An answer is invalid if it cannot be read or uses other numbers. The step info `answer`
    is the value of the expression, so two expressions with one value are one answer.
    """

    writes: ClassVar[frozenset[str]] = frozenset({"answer", "gold_answer", "exact", "expression", "checks"})
    num_numbers: Annotated[int, Field(ge=2, le=5)] = 3
    """Numbers that are given."""
    largest_number: Annotated[int, Field(ge=2, le=100)] = 12
    """The largest number that is given."""
    largest_target: Annotated[int, Field(ge=2, le=1000)] = 100
    """The largest target."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the rollout, so there is only one step."""
    success_reward: float = 1.0
    """Reward of a right answer."""

    @model_validator(mode="after")
    def _wide_enough(self) -> Countdown:
        if self.largest_number**self.num_numbers < 100:
            raise ValueError("so few different tasks cannot fill three task sets; raise largest_number or num_numbers")
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        settings = self.num_numbers, self.largest_number, self.largest_target
        return choose_split(draw_task_sets(ENV, _draw, *settings, sizes=SIZES), split)

    def open(self, task: Task) -> CountdownEnvironment:
        check_env(task, ENV)
        return CountdownEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = (str(number) for number in range(max(self.largest_number, self.largest_target) + 1))
        return vocabulary_of((self.instruction(), "Make from, . Right. Wrong. That is not an answer.", *numbers))

    def instruction(self) -> str:
        return "Write an expression that uses each number once, with + - * / and ( )."


class CountdownEnvironment(SteppedEnvironment):
    """One rollout of a target."""

    def __init__(self, task: Task, part: Countdown) -> None:
        super().__init__(task, part.max_steps)
        self._part = part
        self._numbers: list[int] = task.payload["numbers"]
        self._target: int = task.payload["target"]
        self._progress.observation = show_text(f"Make {self._target} from {', '.join(map(str, self._numbers))}.")

    def act(self, action: str) -> Outcome:
        self._progress.step()
        expression = check_expression(action, numbers=self._numbers, target=self._target)
        info: dict[str, Any] = {"gold_answer": str(self._target)}
        if expression is None or not expression.fits:
            if expression is not None:
                info["expression"] = expression.text
            info["checks"] = write_checks(read=expression is not None, fits=None if expression is None else False)
            seen = show_text("That is not an answer.")
            return self._progress.outcome(seen, success=False, accepted=False, info=info)
        is_right = expression.is_right
        checks = write_checks(read=True, fits=True, right=is_right)
        info = {"answer": str(expression.value), "exact": is_right, **info, "expression": expression.text}
        seen = show_text("Right." if is_right else "Wrong.")
        reward = self._part.success_reward if is_right else 0.0
        return self._progress.outcome(seen, success=is_right, reward=reward, info=info | {"checks": checks})

    def expert(self) -> str | None:
        return None if self._progress.ended else find_expression(self._numbers, self._target)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedExpression:
    """An answer that could be read.

    Worked example: "(8-2) * 4" for 24 from 2, 4, 8 has the text "(8 - 2) * 4" and the value 24; it fits and is right.
    """

    text: str
    value: Fraction
    fits: bool
    """Whether it uses the given numbers, each once."""
    is_right: bool
    """Whether it fits and makes the target."""


def check_expression(answer: str, *, numbers: list[int], target: int) -> CheckedExpression | None:
    read = evaluate(answer)
    if read is None:
        return None
    value, used = read
    fits = sorted(used) == sorted(numbers)
    return CheckedExpression(text=format_expression(answer), value=value, fits=fits, is_right=fits and value == target)


def _draw(num_numbers: int, largest_number: int, largest_target: int, index: int) -> Proposal | None:
    """Join random numbers by random operations; the target is what comes out, if it is whole and in range."""
    draws = Draws(ENV, num_numbers, largest_number, largest_target, index)
    numbers = [1 + draws.below(largest_number) for _ in range(num_numbers)]
    expression = str(numbers[0])
    for number in numbers[1:]:
        expression = f"({expression} {draws.pick(tuple(OPERATIONS))} {number})"
    read = evaluate(expression)
    assert read is not None, "no number is 0"
    value = read[0]
    if value.denominator != 1 or not 1 <= value <= largest_target:
        return None
    # Sorted: the order must not tell the solution, nor make two tasks of one.
    return Proposal(payload={"numbers": sorted(numbers), "target": int(value)})


# Arithmetic of the countdown: reads an expression without evaluating it as code, and finds one that makes the target.

MAX_EXPRESSION_CHARACTERS = 200
MAX_OPEN_PARENTHESES = 50
TOKEN = re.compile(r"\s*(?:([0-9]{1,9})|([-+*/()]))")
OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_OF_NODE = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def evaluate(text: str) -> tuple[Fraction, list[int]] | None:
    """The value of an expression and the numbers it uses, in order; None if it is not an expression.

    An expression has integers, + - * / and parentheses, and nothing else.

    >>> evaluate("(8 - 2) / 4")
    (Fraction(3, 2), [8, 2, 4])
    """
    tokens = _split_tokens(text)
    num_open = accumulate({"(": 1, ")": -1}.get(token, 0) for token in tokens)
    if max(num_open, default=0) > MAX_OPEN_PARENTHESES:
        return None
    try:
        # Python's parser knows the precedence, but takes no number that begins with 0.
        tree = ast.parse(" ".join(str(int(token)) if token.isdigit() else token for token in tokens), mode="eval")
        return _compute(tree.body), [int(token) for token in tokens if token.isdigit()]
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None


def _compute(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant):
        return Fraction(node.value)  # type: ignore[arg-type]  # tokens make no other constants than integers
    if isinstance(node, ast.BinOp) and type(node.op) in _OF_NODE:
        return OPERATIONS[_OF_NODE[type(node.op)]](_compute(node.left), _compute(node.right))
    raise ValueError("signs before numbers, calls and empty parentheses are no expressions")


def _split_tokens(text: str) -> list[str]:
    """The numbers and signs of a text; empty if it has anything else, or is too long."""
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = TOKEN.match(text, position)
        if match is None or len(text) > MAX_EXPRESSION_CHARACTERS:
            return []
        tokens.append(match[1] or match[2])
        position = match.end()
    return tokens


def format_expression(text: str) -> str:
    """An expression with single spaces, none inside parentheses.

    >>> format_expression("( 8-2)/4")
    '(8 - 2) / 4'
    """
    return " ".join(_split_tokens(text)).replace("( ", "(").replace(" )", ")")


def find_expression(numbers: Sequence[int], target: int) -> str | None:
    return _combine([(Fraction(number), str(number)) for number in numbers], target)


def _combine(values: list[tuple[Fraction, str]], target: int) -> str | None:
    """Join two of the values in every way, until one is left that is the target."""
    if len(values) == 1:
        return values[0][1] if values[0][0] == target else None
    for first, second in combinations(range(len(values)), 2):
        rest = [value for index, value in enumerate(values) if index not in (first, second)]
        for left, right in ((values[first], values[second]), (values[second], values[first])):
            for sign, operation in OPERATIONS.items():
                if sign == "/" and right[0] == 0:
                    continue
                joined = (operation(left[0], right[0]), f"({left[1]} {sign} {right[1]})")
                expression = _combine([*rest, joined], target)
                if expression is not None:
                    return expression
    return None
