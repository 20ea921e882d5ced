"""Tests of runs of several processes: marked, skipped with a reason; their measurements are saved on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.cli.warmup import warmup
from tests.measured_numbers import Numbers, mark_below
from tests.scale.environment import RUN_FILE

NUMBERS = Numbers("make test-scale RECORD=1", variable="GROUPWISE_SCALE_RECORD")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    mark_below(Path(__file__).parent, items, pytest.mark.scale)


@pytest.fixture(scope="session", autouse=True)
def processes_are_listed() -> None:
    """Skip where there is no list of processes to find those in that stayed behind."""
    if sys.platform != "linux":
        pytest.skip("needs Linux: processes that stay behind are found in /proc")


@pytest.fixture(scope="session")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one warm start that every run here begins with."""
    folder = tmp_path_factory.mktemp("start") / "model"
    warmup(RUN_FILE, out=folder, set_=["evaluation.tasks=0"])
    return folder


@pytest.fixture
def numbers() -> Iterator[Numbers]:
    """Where a test writes down what it measured; kept at once, since the whole takes long."""
    yield NUMBERS
    NUMBERS.keep(has_passed=False)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Say whether everything passed."""
    NUMBERS.keep(has_passed=exitstatus == 0)
