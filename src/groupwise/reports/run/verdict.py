"""The verdicts on a run, from the evaluations in its journal; and success while sampling, where there are none."""

from __future__ import annotations

from groupwise.evaluation.verdict import RunVerdict, make_verdict
from groupwise.reports.run.overview import read_update_lines
from groupwise.reports.run.run_folder import RunFolder


def find_verdict(folder: RunFolder) -> RunVerdict | None:
    """How the run did on the panel that its settings name, or on the one most often played; None = never evaluated."""
    rows = folder.journal.evaluations()
    numbers: dict[str, set[int]] = {}
    for row in rows:
        numbers.setdefault(row.split, set()).add(row.number)
    if not numbers:
        return None
    named = folder.setting("evaluation.split")
    split = named if named in numbers else max(sorted(numbers), key=lambda name: len(numbers[name]))
    return make_verdict(rows, split)


def list_verdicts(folder: RunFolder) -> list[RunVerdict]:
    """How the run did on every panel it was evaluated on, by the panels' names."""
    rows = folder.journal.evaluations()
    return [make_verdict(rows, split) for split in sorted({row.split for row in rows})]


def find_sampling_success(folder: RunFolder) -> tuple[float, float] | None:
    """Success while sampling, at the first and the last update that has it; what there is without an evaluation."""
    shares = [line.success for line in read_update_lines(folder) if line.success is not None]
    return (shares[0], shares[-1]) if shares else None
