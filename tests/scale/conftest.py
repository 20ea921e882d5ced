"""Tests of runs of several processes: marked, skipped with a reason, and what they measure is kept."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.cli.warmup import warmup
from tests.scale.environment import RUN_FILE
from tests.vllm.environment import Numbers, find_reason_to_skip, read_versions

NUMBERS = Numbers("make test-scale")
STARTED = time.monotonic()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.scale)


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
    record(has_passed=False)


def record(*, has_passed: bool) -> None:
    """Write down what was measured so far, where a file is named."""
    path = os.environ.get("GROUPWISE_SCALE_RECORD")
    if path and NUMBERS.measured:
        if "versions" not in NUMBERS.measured and find_reason_to_skip() is None:
            NUMBERS.measured["versions"] = read_versions()
        NUMBERS.write(Path(path), is_complete=has_passed, seconds=time.monotonic() - STARTED)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Say whether everything passed."""
    record(has_passed=exitstatus == 0)
