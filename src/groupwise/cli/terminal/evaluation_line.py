"""An evaluation in a line, as training, warm starts and evaluations print it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.cli.terminal.screen import format_plain_percent

if TYPE_CHECKING:
    from groupwise.evaluation.summary import Evaluation, PassAt, TasksSummary


def describe_evaluation(evaluation: Evaluation) -> str:
    """An evaluation in a line."""
    tries = "" if evaluation.attempts == evaluation.tasks else f" x {evaluation.attempts / evaluation.tasks:g} attempts"
    return f"success {format_success(evaluation)} over {evaluation.tasks} tasks{tries} of split {evaluation.split}"


def format_success(line: Evaluation | TasksSummary | PassAt) -> str:
    """Success in per cent, with its 95 % interval."""
    low, high = line.interval
    return f"{format_plain_percent(line.success)} [{100 * low:.1f}, {100 * high:.1f}]"
