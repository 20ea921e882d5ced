"""What the parts that give credit must return: groupers, signals, estimators, token credit, filters.

Axes: S steps of a table, C members of a statistic, M groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from groupwise.core.credit import Credit
from groupwise.core.parts.result_checks import Arguments, RequiredResult, is_array, is_finite_array
from groupwise.core.text.value_words import describe_value
from groupwise.core.token_credit import TokenCredit


def _are_labels(result: Any, arguments: Arguments) -> bool:
    return is_array(result, "i", len(arguments[0])) and (not len(result) or int(result.min()) >= -1)


def _is_credit(result: Any, arguments: Arguments) -> bool:
    if not isinstance(result, Credit):
        return False
    trace, table = result.trace, arguments[0]
    # Another order of as many rows would give each attempt somebody else's credit, in silence.
    is_whole = isinstance(result.step_of_row, np.ndarray) and np.array_equal(result.step_of_row, table.step_of_row)
    has_both = hasattr(trace, "values") and hasattr(trace, "compared")
    return (
        is_whole
        and has_both
        and is_finite_array(trace.values, len(table))
        and is_array(trace.compared, "b", len(table))
    )


def _is_token_credit(result: Any, arguments: Arguments) -> bool:
    if not isinstance(result, TokenCredit):
        return False
    num = len(arguments[2])
    is_whole = is_array(result.values, "f", num) and is_array(result.trains, "b", num)
    is_whole = is_whole and (result.span is None or is_array(result.span, "i", num))
    return is_whole and bool(np.isfinite(result.values[result.trains]).all())


def _find_token_credit_fault(result: Any, arguments: Arguments) -> str:
    """Say which field of token credit is wrong, and at which token."""
    if not isinstance(result, TokenCredit):
        return describe_value(result)
    num = len(arguments[2])
    for name, kinds in (("values", "f"), ("trains", "b")):
        column = getattr(result, name)
        if not is_array(column, kinds, num):
            return f"a TokenCredit whose {name!r} is {describe_value(column)} for {num} tokens"
    if result.span is not None and not is_array(result.span, "i", num):
        return f"a TokenCredit whose 'span' is {describe_value(result.span)} for {num} tokens"
    first = int(np.flatnonzero(result.trains & ~np.isfinite(result.values))[0])
    return f"a TokenCredit whose 'values' is {result.values[first]} at token {first}, which trains"


CREDIT_RESULTS: Mapping[str, Mapping[str, RequiredResult]] = {
    "grouper": {
        "__call__": RequiredResult(
            "a NumPy array of one whole number for each step (-1 = not comparable)", _are_labels
        ),
    },
    "signal": {
        "__call__": RequiredResult(
            "a NumPy array of one finite float for each step",
            lambda result, arguments: is_finite_array(result, len(arguments[0])),
        ),
    },
    "baseline": {
        "__call__": RequiredResult(
            "a NumPy array of one finite float for each value, the value less its group's level,",
            lambda result, arguments: is_finite_array(result, len(arguments[0])),
        ),
    },
    "scale": {
        "__call__": RequiredResult(
            "a NumPy array of one finite float for each group",
            lambda result, arguments: is_finite_array(result, len(arguments[1])),
        ),
    },
    "estimator": {
        "__call__": RequiredResult(
            "a Credit with one finite value for each step of the table, by the rows of that table "
            "(`Credit.of(table, trace)`),",
            _is_credit,
        ),
    },
    "token_credit": {
        "__call__": RequiredResult(
            "a TokenCredit with one float, finite where the token trains, and one boolean for each token",
            _is_token_credit,
            _find_token_credit_fault,
        ),
    },
    "filter": {
        "__call__": RequiredResult(
            "a NumPy array of one boolean for each step (True = it may train)",
            lambda result, arguments: is_array(result, "b", len(arguments[0])),
        ),
    },
}
