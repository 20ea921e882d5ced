"""Cutting answers into segments, and playing on from where a segment ends.

A segment end is a number of sampled tokens; the last one is the length of the response. Ends before it are *inner*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from groupwise.data.records import FAULTS, Step, Trajectory
from groupwise.parts.slots import Draw
from groupwise.rollout.measures.tools import Continuation, Tools
from groupwise.system.errors import RecordError

LARGEST_SEED = 2**63


def cut_after_uncertain(logps: Sequence[float], *, max_probability: float, per_segment: int) -> list[int]:
    """End a segment after every so many tokens that were less likely than `max_probability`.

    >>> cut_after_uncertain([-1.0, 0.0, -1.0, -1.0, 0.0], max_probability=0.9, per_segment=2)
    [3, 5]
    """
    ends, seen = [], 0
    for place, logp in enumerate(logps):
        seen += math.exp(logp) < max_probability
        if seen == per_segment:
            ends.append(place + 1)
            seen = 0
    return [*(end for end in ends if end < len(logps)), len(logps)]


def cut_after_separators(
    pieces: Sequence[str], *, separators: Sequence[str], min_tokens: int, max_segments: int
) -> list[int]:
    """End a segment after each token with which a separator is complete, if it has enough tokens; too many are merged.

    Tokens may cut a separator: two line ends are a blank line, whether or not one token holds both.

    >>> cut_after_separators(["a", ";", "b", "c", ";", "d"], separators=[";"], min_tokens=2, max_segments=16)
    [2, 5, 6]
    >>> cut_after_separators(["a", "\\n", "\\n", "b"], separators=["\\n\\n"], min_tokens=1, max_segments=16)
    [3, 4]
    """
    inner, begin, before = [], 0, ""
    for place, piece in enumerate(pieces[:-1]):
        if place + 1 - begin >= min_tokens and any(_completes(separator, before, piece) for separator in separators):
            inner.append(place + 1)
            begin = place + 1
        before += piece
    if len(inner) >= max_segments:
        num = max_segments - 1
        inner = [inner[(number + 1) * len(inner) // (num + 1)] for number in range(num)]
    return [*inner, len(pieces)]


def _completes(separator: str, before: str, piece: str) -> bool:
    """Whether a piece of text holds the end of a separator, which may have begun before it."""
    begun = before[max(len(before) - len(separator) + 1, 0) :]
    return separator in begun + piece


def take_sampled(step: Step) -> tuple[int, ...]:
    return step.response_ids[step.forced :]


def take_answer(trajectory: Trajectory, what: str) -> Step:
    """The one step of an attempt; attempts of several are refused, since only a first answer can be gone on from."""
    if len(trajectory.steps) != 1:
        raise RecordError(
            f"{trajectory.describe()}: it has {len(trajectory.steps)} steps, and "
            f"{what} goes on from parts of a first answer alone; use it where an attempt is one answer"
        )
    return trajectory.steps[0]


def play_on(
    prefixes: Sequence[tuple[Trajectory, tuple[int, ...]]],
    tools: Tools,
    *,
    draw: Draw,
    times: int,
    extra_tokens: int = 0,
) -> list[list[Trajectory]]:
    """Go on from beginnings of answers, so many times each; attempts that a fault ended are left out."""
    continuations = [
        Continuation(
            task=trajectory.task,
            forced=forced,
            seed=int(draw(trajectory.task.id, trajectory.attempt, number, len(forced)).integers(LARGEST_SEED)),
        )
        for trajectory, forced in prefixes
        for number in range(times)
    ]
    played = tools.play(continuations, extra_tokens=extra_tokens) if continuations else []
    return [
        [attempt for attempt in played[begin : begin + times] if attempt.stop not in FAULTS and attempt.steps]
        for begin in range(0, len(played), times)
    ]
