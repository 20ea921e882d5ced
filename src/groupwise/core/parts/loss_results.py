"""What the parts of a loss must return: losses, ratios, surrogates, corrections, penalties, aggregates, pairings.

Core knows no torch: a tensor is what has `detach`, a shape and a floating-point type. Axis: T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from groupwise.core.pairs import Pair
from groupwise.core.parts.result_checks import NAMES, Arguments, RequiredResult, is_nonnegative_integer, is_number
from groupwise.core.text.value_words import describe_value


def _is_tensor(result: Any, shape: tuple[int, ...]) -> bool:
    return hasattr(result, "detach") and tuple(result.shape) == shape and bool(result.is_floating_point())


def _is_one_a_token(result: Any, arguments: Arguments) -> bool:
    return _is_tensor(result, tuple(arguments[-1].logp.shape))


def _is_loss(result: Any, arguments: Arguments) -> bool:
    return _is_tensor(getattr(result, "loss", None), ()) and isinstance(getattr(result, "metrics", None), Mapping)


def _find_loss_fault(result: Any, arguments: Arguments) -> str:
    """Say which field of a loss's result is wrong."""
    if not hasattr(result, "loss"):
        return describe_value(result)
    kind = type(result).__name__
    if not _is_tensor(result.loss, ()):
        dtype = f" of {result.loss.dtype}" if hasattr(result.loss, "dtype") else ""
        return f"a {kind} whose 'loss' is {describe_value(result.loss)}{dtype}"
    return f"a {kind} whose 'metrics' is {describe_value(getattr(result, 'metrics', None))}"


def _is_mergeable(result: Any, arguments: Arguments) -> bool:
    return not isinstance(result, list | tuple | str) and (hasattr(result, "merge") or hasattr(result, "__add__"))


def _are_pairs(result: Any, arguments: Arguments) -> bool:
    return isinstance(result, list | tuple) and all(_is_pair(pair, arguments[0]) for pair in result)


def _is_pair(pair: Any, table: Any) -> bool:
    if (
        not isinstance(pair, Pair)
        or not all(is_nonnegative_integer(number) for number in pair[:2])
        or not all(step is None or is_nonnegative_integer(step) for step in (pair.winner_step, pair.loser_step))
        or _is_against_itself(pair)
        or not (is_number(pair.gap) and math.isfinite(pair.gap))
    ):
        return False
    first = table.attempts.first
    is_known = max(pair[:2]) < len(first)
    is_weighed = is_number(pair.weight) and math.isfinite(pair.weight) and pair.weight > 0
    return is_known and is_weighed and bool(table.task[first[pair.winner]] == table.task[first[pair.loser]])


def _is_against_itself(pair: Pair) -> bool:
    """Whether winner and loser are one attempt, unless two of its steps are meant."""
    steps = {pair.winner_step, pair.loser_step}
    return pair.winner == pair.loser and (len(steps) == 1 or None in steps)


_TOKEN_TENSOR = "a tensor of one floating-point number for each token"

LOSS_RESULTS: Mapping[str, Mapping[str, RequiredResult]] = {
    "loss": {
        "__call__": RequiredResult(
            "a LossResult with a loss that is a tensor of one number, and metrics", _is_loss, _find_loss_fault
        ),
        "needs": NAMES,
        "columns": NAMES,
        "channels": NAMES,
        "first_pass": RequiredResult(
            "a summary whose parts add up, by `+` or by a method `merge` (a list would grow with every micro-batch),",
            _is_mergeable,
        ),
    },
    "pairing": {
        "__call__": RequiredResult(
            "a list of Pair, each of two attempts at one task and of a weight above 0,", _are_pairs
        ),
    },
    "ratio": {"__call__": RequiredResult(_TOKEN_TENSOR, _is_one_a_token)},
    "surrogate": {
        "__call__": RequiredResult(
            f"a TokenLoss, whose loss is {_TOKEN_TENSOR},",
            lambda result, arguments: hasattr(result, "clipped") and _is_one_a_token(result.loss, arguments),
        ),
    },
    "correction": {"__call__": RequiredResult(_TOKEN_TENSOR, _is_one_a_token)},
    "penalty": {"__call__": RequiredResult(_TOKEN_TENSOR, _is_one_a_token)},
    "aggregate": {
        "__call__": RequiredResult("a tensor of one number", lambda result, arguments: _is_tensor(result, ())),
    },
}
