"""A reader of docs/learn/idea_to_model.md: saves the files of its pages, and does what it says in order."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import make_app
from tests.architecture.markdown import Block, blocks_of

PAGE = "docs/learn/idea_to_model.md"
PYTHON_FILES = {
    "thermostat.py": "docs/learn/own_environment.md",
    "sooner.py": "docs/learn/own_method.md",
    "rewards.py": "docs/learn/own_data.md",
}
"""What the reader saves, and the page whose first block of Python it is."""
RUN_FILES = {"thermostat.toml": "docs/learn/own_environment.md", "mine.toml": PAGE}


class Reader:
    """Somebody in a folder of their own, with the pages and nothing else."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {}
        """What the page's Python has defined so far."""
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        for language, files in (("python", PYTHON_FILES), ("toml", RUN_FILES)):
            for name, page in files.items():
                monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
                (folder / name).write_text(blocks_of(page, language)[0].text, encoding="utf-8")

    def follow(self) -> list[str]:
        """Do what the page says, in its order; the commands that were run."""
        commands: list[str] = []
        for block in blocks_of(PAGE, "bash", "python"):
            if block.language == "python":
                self._run_python(block)
            else:
                commands += [self._run_command(line) for line in block.text.splitlines()]
        return commands

    def _run_python(self, block: Block) -> None:
        exec(compile(block.text, block.page, "exec"), self.names)

    def _run_command(self, line: str) -> str:
        program, *words = shlex.split(line, comments=True)
        assert program == "groupwise"
        answer = CliRunner().invoke(make_app(), words)
        assert answer.exit_code == 0, f"{line}: {answer.output} {answer.exception}"
        return re.sub(r"\s*#.*", "", line)
