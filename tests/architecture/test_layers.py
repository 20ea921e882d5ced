"""Who may import whom, as pyproject.toml states it."""

from __future__ import annotations

import pytest
from importlinter.cli import lint_imports

from tests.architecture.sources import PACKAGE, ROOT


def test_the_layers_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_the_commands_print_through_one_file_only() -> None:
    """What is recorded may hold anything; `cli/screen.py` escapes it, so that nobody can forget to."""
    ways = ("typer.echo", "click.echo", "sys.stdout.write", "Console(", "typer.secho")
    found = [
        f"{path.name}: {way}"
        for path in sorted((PACKAGE / "cli").glob("*.py"))
        for way in ways
        if path.name != "screen.py" and way in path.read_text(encoding="utf-8")
    ]
    assert found == []
