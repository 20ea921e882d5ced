"""Segments of responses as columns of the step table: where each ends, which one a token is in, one number per segment.

Axes: S steps of the table, K sampled tokens of all steps, G segments of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.data.credit import Comparison, Credit
from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.system.errors import RecordError


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerSegments:
    """The segments of all responses, one after the other.

    Worked example: two responses of three tokens and one token; the first is cut after its second token. Then `step` is
    [0, 0, 1] and `of_token` is [0, 0, 1, 2].
    """

    step: IntArray
    """Step of each segment (G)."""
    of_token: IntArray
    """Segment of each token (K)."""
    numbers: tuple[tuple[float, ...], ...]
    """The numbers of each step (S), one per segment end that was measured."""
    ends: tuple[tuple[int, ...], ...]
    """Where the segments of each step end (S)."""


def read_segments(table: StepTable, tokens: TokenTable, *, ends: str, numbers: str, more: int) -> AnswerSegments:
    """Read the segments from two columns. A step has len(segments) + `more` numbers, with `more` -1, 0 or 1.

    A step without tokens has no segment. Columns that do not fit the tokens are an error that names the step.
    """
    length = np.bincount(tokens.row, minlength=len(table)).tolist()
    all_ends, all_numbers = table.column(ends), table.column(numbers)
    kept_ends: list[tuple[int, ...]] = []
    kept_numbers: list[tuple[float, ...]] = []
    of_token: list[int] = []
    step_of_segment: list[int] = []
    for step, num in enumerate(length):
        own = _check_ends(table, step, all_ends[step], num, ends) if num else []
        values = _check_numbers(table, step, all_numbers[step], len(own) + more, numbers) if num else []
        for begin, end in zip([0, *own], own, strict=False):
            of_token += [len(step_of_segment)] * (end - begin)
            step_of_segment.append(step)
        kept_ends.append(tuple(own))
        kept_numbers.append(tuple(values))
    return AnswerSegments(
        step=np.array(step_of_segment, dtype=np.int64),
        of_token=np.array(of_token, dtype=np.int64),
        numbers=tuple(kept_numbers),
        ends=tuple(kept_ends),
    )


def join_numbers(by_step: list[list[float]]) -> FloatArray:
    """The numbers of all segments, step after step (G)."""
    return np.array([number for numbers in by_step for number in numbers], dtype=np.float64)


def _check_ends(table: StepTable, step: int, ends: Any, num: int, name: str) -> list[int]:
    is_list = isinstance(ends, list | tuple) and all(type(end) is int for end in ends)
    if not is_list or not ends or ends[-1] != num or any(a >= b for a, b in zip([0, *ends], ends, strict=False)):
        raise RecordError(
            f"{table.describe_step(step)}: {name} is {ends!r}, but segment ends must rise to the {num} sampled tokens "
            "of the step; add the scorer that writes it"
        )
    return list(ends)


def _check_numbers(table: StepTable, step: int, numbers: Any, num: int, name: str) -> list[float]:
    is_list = isinstance(numbers, list | tuple) and all(isinstance(number, int | float) for number in numbers)
    if not is_list or len(numbers) != num or not np.isfinite(np.array(numbers, dtype=np.float64)).all():
        raise RecordError(
            f"{table.describe_step(step)}: {name} is {numbers!r}, but its segments need {num} finite numbers; "
            "add the scorer that writes it"
        )
    return [float(number) for number in numbers]


def read_token_numbers(
    table: StepTable, tokens: TokenTable, name: str, *, writer: str, skipped: BoolArray | None = None
) -> FloatArray:
    """A column with one number per sampled token (K); the tokens of the steps in `skipped` (S) get 0."""
    column, length = table.column(name), np.bincount(tokens.row, minlength=len(table)).tolist()
    numbers: list[float] = []
    for step, num in enumerate(length):
        own = column[step]
        if num == 0 or (skipped is not None and skipped[step]):
            own = [0.0] * num
        elif not isinstance(own, list | tuple) or len(own) != num:
            raise RecordError(
                f"{table.describe_step(step)}: {name} does not have one number for each of its {num} sampled tokens; "
                f"add {writer}"
            )
        numbers += own
    return np.array(numbers, dtype=np.float64)


ENDS, VALUES = "segment_ends", "segment_values"


def read_comparison(table: StepTable, credit: Credit, what: str) -> Comparison:
    """The comparison that made the advantages: R is its signal and R - A its baseline, both in units of the reward.

    This does not hold for sums, mixtures, advantages made of other advantages, or a division by a scale. Those are
    errors.
    """
    trace = credit.trace
    if not isinstance(trace, Comparison) or trace.of is not None:
        raise RecordError(f"{what} reads the baseline of a comparison in groups; use the estimator relative")
    divided = np.flatnonzero(~np.isnan(trace.scale) & (trace.scale != 1.0))
    if len(divided):
        raise RecordError(
            f"{table.describe_step(int(divided[0]))}: its advantage was divided by {trace.scale[divided[0]]:.6g}, and "
            f"{what} needs advantages in units of the reward; set the estimator's scale to no_scale"
        )
    return trace
