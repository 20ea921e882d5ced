"""Threads follow the machine: its cores, its load, and OMP_NUM_THREADS."""

from __future__ import annotations

import pytest

from groupwise.system import processes as free_cores
from groupwise.system.processes import choose_threads


@pytest.mark.parametrize(
    ("cores", "load", "environment", "max_threads", "threads"),
    [
        (8, 0.2, "", 2, 2),
        (8, 0.2, "", 0, 8),
        (8, 0.2, "1", 2, 1),
        (8, 0.2, "4,2", 0, 4),
        (8, 0.2, "many", 2, 2),
        (8, 0.2, "0", 2, 2),
        (2, 0.9, "", 2, 1),
        (2, 0.4, "", 2, 2),
        (2, 17.0, "", 2, 1),
        (1, 0.0, "4", 2, 1),
    ],
)
def test_as_many_as_are_free_and_asked_for(
    monkeypatch: pytest.MonkeyPatch, cores: int, load: float, environment: str, max_threads: int, threads: int
) -> None:
    monkeypatch.setattr(free_cores, "count_usable_cores", lambda: cores)
    monkeypatch.setattr(free_cores, "read_load", lambda: load)
    monkeypatch.setenv("OMP_NUM_THREADS", environment)
    assert choose_threads(max_threads) == threads


@pytest.mark.parametrize(("ranks", "threads"), [(2, 4), (3, 2), (16, 1)])
def test_ranks_come_to_the_same_number_at_any_moment(monkeypatch: pytest.MonkeyPatch, ranks: int, threads: int) -> None:
    monkeypatch.setattr(free_cores, "count_usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for load in (0.0, 7.0):
        monkeypatch.setattr(free_cores, "read_load", lambda load=load: load)
        assert choose_threads(0, ranks=ranks) == threads
