"""Hours of a GPU are added up from records, and what has none says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cost_tables
import pytest
import record_commits
import table_text


def write_records(folder: Path, records: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put records in the place of the results."""
    for name, record in records.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")
    for module in (record_commits, table_text):
        monkeypatch.setattr(module, "RESULTS", folder)
    table_text.result.cache_clear()


@pytest.fixture(autouse=True)
def _forget_records_at_the_end() -> Any:
    yield
    table_text.result.cache_clear()


def read_rows(text: str) -> list[list[str]]:
    """Cells of a table, less its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_seeds_are_one_row_and_processors_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records: dict[str, dict[str, Any]] = {
        "made/up_seed_0": {"device": "NVIDIA H200", "hours": 0.5, "commit": "0123456789ab"},
        "made/up_seed_1": {"device": "NVIDIA H200", "hours": 0.25, "commit": "ba9876543210"},
        "on_a_processor": {"machine": "2 cores", "hours": 9.0},
        "untimed": {"device": "NVIDIA H200", "came_with_commits": ["0123456789ab", "ba9876543210"]},
        "sharded_update": {
            "device": "NVIDIA H200",
            "came_with_commits": ["0123456789ab"],
            "updates": {"a": [{"seconds": 1800.0}], "b": [{"seconds": 1800.0}]},
        },
    }
    write_records(tmp_path, records, monkeypatch)
    assert read_rows(cost_tables.gpu_hours()) == [
        ["`made/up_seed_*.json`", "2", "`01234567`, `ba987654`", "0.75", "all of it"],
        ["`sharded_update.json`", "1", "(`01234567`)", "1.00", "updates, warm ones too, without opening"],
        ["`untimed.json`", "1", "(`01234567`, `ba987654`)", "not recorded", "no seconds in the file"],
        ["all that was recorded", "", "", "1.75", ""],
    ]


def test_lists_of_seconds_are_added_up_and_other_numbers_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = {"first_seconds": 1000.0, "seconds": [400.0, 400.0], "median_seconds": 7.0, "responses_per_second": 9.0}
    shape = {"open_seconds": {"ours": 1000.0, "theirs": 800.0}, "cases": {"agent": {"ours": timed}}}
    write_records(
        tmp_path, {"engine_vllm": {"device": "NVIDIA H200", "commit": "0123", "shapes": {"135M": shape}}}, monkeypatch
    )
    assert read_rows(cost_tables.gpu_hours())[0][3] == "1.00"


def test_every_counter_is_that_of_a_record_there_is() -> None:
    names = [*cost_tables.PARTS, *cost_tables.NOT_RECORDED, *record_commits.WITHOUT_DEVICE]
    assert [name for name in names if not (table_text.RESULTS / f"{name}.json").is_file()] == []
    assert all(count(table_text.result(name)) > 0 for name, (_, count) in cost_tables.PARTS.items())
