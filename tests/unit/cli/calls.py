"""Commands in this process: what they print, as text, as JSON, or line by line without the white space of tables."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from groupwise.cli.main import make_app


def invoke(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.stdout


def show_json(*arguments: object) -> Any:
    return json.loads(invoke(*arguments, "--json"))


def words(text: str) -> list[str]:
    """The lines of a text without the tables' white space."""
    return [" ".join(line.split()) for line in text.splitlines()]
