"""`groupwise train` as one of several processes: what it was told wrong is said before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small

WAYS = "start the run with torchrun, which sets all of them, or unset them for a run in one process"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "1"}, "RANK is set, but WORLD_SIZE is not"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "RANK and WORLD_SIZE are set, but LOCAL_RANK is not"),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
            "2 processes were started, but MASTER_ADDR is not set, so they cannot connect",
        ),
    ],
)
def test_a_process_that_was_told_half(
    groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ran = groupwise("train", small(tmp_path), "--out", "run")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.split() == f"error: {message}; {WAYS}".split()
    assert not (tmp_path / "run").exists()
