"""Items of ranked lists, as facts of the environment and of the measure `item_tokens` say them.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.core.column_checks import quote_value
from groupwise.core.errors import RecordError
from groupwise.core.segments import IntArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_table import TokenTable


@dataclass(frozen=True, eq=False, kw_only=True)
class RankedItems:
    """The lists of all steps, and the span that each token belongs to.

    Worked example: asked for two items, three tokens say one, a fourth ends the answer: `length` (2,), `relevance`
    ([1.0],), `span` [0, 0, 0, 3].
    """

    length: tuple[int, ...]
    """How many items each step was asked for (S): its last rank."""
    relevance: tuple[list[float], ...]
    """How relevant each item of each step is (S)."""
    span: IntArray
    """Of each token (K): the rank of its item from 0; with n ranks, n beyond the last, n + 1 for the end of a list that
    is not too long, n + 2 around the list."""


def read_items(table: StepTable, tokens: TokenTable) -> RankedItems:
    """The lists that the columns of a table say; what does not fit is an error that names the step."""
    columns = [table.column(name) for name in ("list_length", "item_relevance", "item_tokens", "end_token")]
    num_tokens = np.bincount(tokens.step, minlength=len(table)).tolist()
    span = np.empty(len(tokens), dtype=np.int64)
    first = 0
    lengths: list[int] = []
    listed: list[list[float]] = []
    _check_single_answers(table)
    for step, num in enumerate(num_tokens):
        length, relevance, places, end = (column[step] for column in columns)
        _check_step(table, step, length, relevance, places, end, num)
        own = np.full(num, length + 2, dtype=np.int64)
        for rank, (begin, after) in enumerate(places):
            own[begin:after] = min(rank, length)
        if end is not None:
            own[end] = length if len(relevance) > length else length + 1
        span[first : first + num] = own
        first += num
        lengths.append(int(length))
        listed.append([float(degree) for degree in relevance])
    return RankedItems(length=tuple(lengths), relevance=tuple(listed), span=span)


def _check_single_answers(table: StepTable) -> None:
    again = np.flatnonzero(table.attempt[1:] == table.attempt[:-1])
    if len(again):
        raise RecordError(
            f"{table.describe_step(int(again[0]) + 1)}: its attempt has several steps, and rank_credit compares lists "
            "of one answer; use it where an attempt is one answer"
        )


def _check_step(table: StepTable, step: int, length: Any, relevance: Any, places: Any, end: Any, num: int) -> None:
    """Refuse facts that are not those of a list whose items lie one after the other among the step's tokens."""
    is_list = isinstance(relevance, list | tuple) and all(_is_number(degree) for degree in relevance)
    if not _is_count(length) or length < 1 or not is_list:
        raise RecordError(
            f"{table.describe_step(step)}: list_length is {quote_value(length)} and item_relevance "
            f"{quote_value(relevance)}, but how many items are asked for and a finite number for each that was given "
            "are needed; use an environment that says them, such as ranked_lists"
        )
    is_sorted = isinstance(places, list | tuple) and all(
        isinstance(place, list | tuple) and len(place) == 2 and all(map(_is_count, place)) for place in places
    )
    flat = [0, *(bound for place in places for bound in place), num] if is_sorted else []
    if not is_sorted or flat != sorted(flat) or len(places) != len(relevance):
        raise RecordError(
            f"{table.describe_step(step)}: item_tokens is {quote_value(places)}, but a begin and an end, one after the "
            f"other, among the {num} sampled tokens belong to each of its {len(relevance)} items; measure them with "
            "item_tokens"
        )
    if end is not None and not (_is_count(end) and end < num):
        raise RecordError(
            f"{table.describe_step(step)}: end_token is {quote_value(end)}, but the step has {num} sampled tokens; "
            "measure it with item_tokens"
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
