"""Tests against a real vLLM: marked, skipped with a reason where there is none, and what they measure is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.vllm.environment import Numbers, find_reason_to_skip, read_versions

NUMBERS = Numbers("make test-vllm")
STARTED = time.monotonic()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.vllm)


@pytest.fixture(scope="session", autouse=True)
def vllm_is_there() -> None:
    """Skip where there is no vLLM."""
    reason = find_reason_to_skip()
    if reason:
        pytest.skip(reason)
    NUMBERS.measured["versions"] = read_versions()


@pytest.fixture
def numbers() -> Iterator[Numbers]:
    """Where a test writes down what it measured."""
    return NUMBERS


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write down what was measured, where a file is named."""
    path = os.environ.get("GROUPWISE_VLLM_RECORD")
    if path and NUMBERS.measured:
        NUMBERS.write(Path(path), is_complete=exitstatus == 0, seconds=time.monotonic() - STARTED)
