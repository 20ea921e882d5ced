"""A run's folder for the tests that only read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.training.run_reader import RunFolder
from tests.unit.report.run_folders import write_run


@pytest.fixture(scope="session")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six updates of four tasks, four rollouts each, evaluated before, in the middle and after."""
    return write_run(tmp_path_factory.mktemp("runs") / "home", evaluations=(0, 3, 6))


@pytest.fixture
def run(run_path: Path) -> Iterator[RunFolder]:
    with RunFolder(run_path) as folder:
        yield folder
