"""What measurements took of a GPU, from the seconds that their records hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from record_commits import commit_cell, list_gpu_records
from table_text import result, table

SUMMARIES = ("alfworld_pooled",)
"""Results that only sum up records, whose hours are counted there."""
SEEDS = "_seed_"
"""Between the name of what was measured and its seed."""


def gpu_hours() -> str:
    """Hours of one H200 by measurement, as far as they were written down."""
    rows, total = [], 0.0
    for name, stems in _group_by_measurement().items():
        records = [result(stem) for stem in stems]
        hours, words = _count_hours(stems[0], records)
        total += hours or 0.0
        commits = ", ".join(commit_cell(record) for record in records)
        shown = "not recorded" if hours is None else f"{hours:.2f}"
        rows.append([f"`{name}`", f"{len(records)}", commits, shown, words])
    rows.append(["all that was recorded", "", "", f"{total:.2f}", ""])
    return table(("file", "records", "commit", "hours of one H200", "what was timed"), rows)


def _group_by_measurement() -> dict[str, list[str]]:
    """Records of a GPU by measurement, of which the seeds are one."""
    groups: dict[str, list[str]] = {}
    for stem in list_gpu_records():
        if stem not in SUMMARIES:
            shared, has_seed, _ = stem.rpartition(SEEDS)
            groups.setdefault(f"{shared}{SEEDS}*.json" if has_seed else f"{stem}.json", []).append(stem)
    return groups


def _count_hours(stem: str, records: list[dict[str, Any]]) -> tuple[float | None, str]:
    if all("hours" in record for record in records):
        return sum(record["hours"] for record in records), "all of it"
    if stem in PARTS:
        words, count_seconds = PARTS[stem]
        return sum(count_seconds(record) for record in records) / 3600, words
    return None, NOT_RECORDED.get(stem, "no seconds in the file")


def _add_up(content: Any, *names: str) -> float:
    """The sum of all numbers that stand under one of some names, in lists too."""
    return sum(_find(content, names))


def _find(content: Any, names: tuple[str, ...]) -> Iterator[float]:
    if isinstance(content, dict):
        for name, value in content.items():
            if name not in names:
                yield from _find(value, names)
            elif isinstance(value, list):
                yield from value
            else:
                yield float(value)
    elif isinstance(content, list):
        for entry in content:
            yield from _find(entry, names)


PARTS: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "alfworld_imitation": ("imitation of the last of six runs", lambda record: _add_up(record, "imitate_seconds")),
    "engine": (
        "first calls, and one of three repeats",
        lambda record: _add_up(record, "first_call_seconds", "seconds_one_token", "seconds_all_tokens"),
    ),
    "engine_profile": (
        "opening, first calls, repeats",
        lambda record: _add_up(record, "open_seconds", "first_seconds", "seconds", "seconds_with_phases"),
    ),
    "engine_vllm": (
        "opening, first calls, repeats",
        lambda record: (
            sum(sum(shape["open_seconds"].values()) for shape in record["shapes"].values())
            + _add_up([shape["cases"] for shape in record["shapes"].values()], "first_seconds", "seconds")
        ),
    ),
    "long_context": ("one update of each length", lambda record: _add_up(record["shapes"], "seconds")),
    "prefix_gpu": ("rounds that count, without compiling", lambda record: _add_up(record, "times")),
    "seven_b_update": ("one update of each form", lambda record: _add_up(record["forms"], "seconds")),
    "sharded_update": ("updates, warm ones too, without opening", lambda record: _add_up(record["updates"], "seconds")),
    "vllm_update": ("updates, warm ones too, without opening", lambda record: _add_up(record["updates"], "seconds")),
}
"""Records that hold seconds of parts alone: what those are, and their sum."""

NOT_RECORDED = {
    "gpu_update": "the median of its updates alone",
    "learning_llm": "processor seconds alone, of six processes beside each other",
}
