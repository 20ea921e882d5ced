"""How the tests run the command line: in this process, as a user would, with its streams and exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from groupwise.cli.main import main
from tests.unit.cli.files import ROWS, write


@dataclass(frozen=True)
class Ran:
    """What a run of the command left behind."""

    status: int
    """Exit status."""
    out: str
    """Standard output."""
    err: str
    """Standard error."""


Run = Callable[..., Ran]


@pytest.fixture
def groupwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs `groupwise ...` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["groupwise", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        code = stopped.value.code
        return Ran(status=code if isinstance(code, int) else 0, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def rollouts(tmp_path: Path) -> str:
    """A small file in that folder."""
    return write(tmp_path / "rollouts.jsonl", ROWS).name
