"""How much memory can be had, and what is said of a model that needs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.system import processes
from groupwise.system.errors import ConfigError
from groupwise.system.processes import check_fits, format_bytes, read_free_memory

TABLE = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 8.192e9), ("max\n", 8.192e9), ("4096000000\n", 4.096e9), ("9000000000\n", 8.192e9)]
)
def test_a_container_may_have_less_than_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, expected: float
) -> None:
    (tmp_path / "meminfo").write_text(TABLE)
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(processes, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(processes, "LIMIT", tmp_path / "memory.max")
    assert read_free_memory() == expected


def test_a_system_that_does_not_say_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MEMINFO", tmp_path / "meminfo")
    assert read_free_memory() is None


def test_what_fits_exactly_is_not_refused() -> None:
    check_fits({"weights": 3e9, "engine": 1e9}, 4e9, remedy="use a smaller model")
    with pytest.raises(ConfigError) as caught:
        check_fits({"weights": 3e9, "reference": 0, "engine": 1e9}, 3.9e9, remedy="use a smaller model")
    assert str(caught.value) == (
        "model: at least 4.0 GB of memory are needed (weights 3.0 GB, engine 1.0 GB), but 3.9 GB are available; use a "
        "smaller model"
    )


def test_sizes_are_told_in_the_largest_unit_that_they_reach() -> None:
    assert [format_bytes(size) for size in (512, 1.5e6, 23.04e9, 520e12, 2.6e15)] == [
        "0.5 kB",
        "1.5 MB",
        "23.0 GB",
        "520.0 TB",
        "2.6 PB",
    ]
