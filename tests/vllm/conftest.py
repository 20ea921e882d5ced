"""Tests against a real vLLM: marked, skipped where there is none; their measurements are saved on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.measured_numbers import Numbers, mark_below
from tests.vllm.environment import find_reason_to_skip

NUMBERS = Numbers("make test-vllm RECORD=1", variable="GROUPWISE_VLLM_RECORD")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    mark_below(Path(__file__).parent, items, pytest.mark.vllm)


@pytest.fixture(scope="session", autouse=True)
def vllm_is_there() -> None:
    """Skip where there is no vLLM."""
    reason = find_reason_to_skip()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def numbers() -> Iterator[Numbers]:
    """Where a test writes down what it measured; saved at once, since the whole takes long."""
    yield NUMBERS
    NUMBERS.keep(has_passed=False)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Say whether everything passed."""
    NUMBERS.keep(has_passed=exitstatus == 0)
