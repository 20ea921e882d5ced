"""What `groupwise inspect` prints of groups for which something was done: by what, from when, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from groupwise.reports.run.number_format import format_signed
from groupwise.reports.run.rescue import (
    Rescue,
    describe_guidance,
    describe_origin,
    describe_recalled,
    describe_shaping,
    format_sizes,
    rescue_of,
)
from groupwise.reports.run.update_groups import PlayedAttempt, PlayedGroup


def mark_group(group: PlayedGroup, rescue: Rescue | None) -> str:
    """A group in a word, where there is one to say."""
    if not group.teaches:
        return "[dark_orange]teaches nothing[/]"
    return "rescued" if rescue and rescue.is_rescued else ""


def make_rescues_table(rescues: Sequence[Rescue]) -> Table:
    """What was done for each group, one a line, with the mean size of its credit without and with it."""
    table = Table(box=None, pad_edge=False)
    for name in ("task", "recalled", "shaped", "guidance"):
        table.add_column(name)
    for name in ("|credit| without", "with"):
        table.add_column(name, justify="right")
    for rescue in rescues:
        done = (describe_recalled(rescue), describe_shaping(rescue), describe_guidance(rescue))
        table.add_row(escape(rescue.task), *done, *format_sizes(rescue))
    return table


def describe_rescue(group: PlayedGroup) -> list[str]:
    """Lines on what was done for a group."""
    rescue = rescue_of(group)
    if rescue is None:
        return []
    lines = []
    if rescue.has_guidance and (shown := rescue.guidance):
        lines.append(f"with guidance in the prompt: attempt {shown.attempt} of update {shown.number} at {shown.task}")
    elif rescue.has_guidance and not rescue.request_words:  # what was asked for is told by itself
        lines.append("with guidance: not recorded which")
    if rescue.num_shaped:
        lines.append(f"rewards shaped: {describe_shaping(rescue)}")
    if rescue.size_without is not None:
        without, size = format_sizes(rescue)
        lines.append(f"mean |credit| {without} without what joined or was added, {size} with it")
    return lines


def describe_joined_attempt(attempt: PlayedAttempt) -> str:
    """Where an attempt that joined a group comes from, with its credit."""
    credit = ", ".join(format_signed(step.credit) for step in attempt.steps[:4])
    more = ", …" if len(attempt.steps) > 4 else ""
    return f"{describe_origin(attempt)}, credit {credit}{more}"


def list_joined(group: PlayedGroup) -> list[dict[str, Any]]:
    """The attempts that joined a group, as plain data without their steps."""
    return [
        {
            "attempt": attempt.attempt,
            "origin": attempt.origin,
            "outcome": attempt.outcome,
            "success": attempt.success,
            "source": attempt.source,
            "credit": [step.credit for step in attempt.steps],
        }
        for attempt in group.joined
    ]
