"""Who may import whom, as pyproject.toml states it."""

from __future__ import annotations

import pytest
from importlinter.cli import lint_imports

from tests.architecture.sources import ROOT


def test_the_layers_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert status == 0, capsys.readouterr().out
