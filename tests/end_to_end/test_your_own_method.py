"""docs/learn/own_method.md does what it says: its part is checked, audited, explained and trained as the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.cli.main import make_app

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "learn" / "own_method.md").read_text(encoding="utf-8")
SHORT = ["--plain", "--set", "training.updates=1", "--set", "warm_start.tasks=20", "--set", "evaluation.tasks=0"]
"""What makes a run of the page last a second or two."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def command(beginning: str) -> list[str]:
    """The words of a command of the page, without the name of the program."""
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith(beginning)]
    return shlex.split(lines[0], comments=True)[1:]


def run(words: list[str]) -> str:
    answer = CliRunner(env={"COLUMNS": "200"}).invoke(make_app(), words)
    assert answer.exit_code == 0, answer.output
    return answer.output


def error_of(words: list[str]) -> str:
    """What the command says on its last line, where the settings are wrong."""
    answer = CliRunner().invoke(make_app(), words)
    assert isinstance(answer.exception, ConfigError), answer.output
    return f"error: {answer.exception}"


def collapse_spaces(text: str) -> list[str]:
    """Lines without the widths of columns, which follow the terminal's."""
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the reader has after the first two sections."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "sooner", raising=False)
    monkeypatch.chdir(tmp_path)
    part, numbers = blocks("python")
    (tmp_path / "sooner.py").write_text(part, encoding="utf-8")
    (tmp_path / "sooner.toml").write_text(blocks("toml")[0], encoding="utf-8")
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "alfworld_rollouts.jsonl", tmp_path / "examples")
    exec(compile(part + numbers, "your_own_method.md", "exec", dont_inherit=True), {"__name__": "sooner_page"})
    return tmp_path


def test_the_audit_and_the_explanation_are_those_of_the_page(folder: Path) -> None:
    _, audit, explanation = blocks("text")
    assert set(collapse_spaces(audit)) <= set(collapse_spaces(run(command("groupwise audit"))))
    shown = collapse_spaces(run(command("groupwise explain")))
    assert collapse_spaces(explanation) == [line for line in shown if line in collapse_spaces(explanation)]


def test_a_wrong_part_is_the_sentence_of_the_page(folder: Path) -> None:
    wrong_field, wrong_call = blocks("text")[0].splitlines()
    file, part = folder / "sooner.toml", folder / "sooner.py"
    text, code = file.read_text(encoding="utf-8"), part.read_text(encoding="utf-8")
    file.write_text(text.replace("half_life =", "half_lives ="), encoding="utf-8")
    assert error_of(["train", "sooner.toml"]) == wrong_field
    file.write_text(text, encoding="utf-8")
    part.write_text(code.replace("self, table: StepTable", "self, rows, table"), encoding="utf-8")
    sys.modules.pop("sooner", None)
    assert error_of(["train", "sooner.toml"]) == wrong_call


def test_the_commands_of_the_page_train_and_look(folder: Path) -> None:
    assert "sooner.toml: 30 updates of 128 rollouts" in run(command("groupwise doctor"))
    run([*command("groupwise train sooner.toml"), *SHORT])
    run([*command("groupwise train sooner.toml --out"), *SHORT])
    compared = collapse_spaces(run(command("groupwise inspect --diff")))
    assert "algorithm.advantage.of.kind sooner:Sooner episode_return" in compared
    assert "16 groups" in run(command("groupwise inspect runs/sooner"))
    run(command("groupwise report"))
    assert (folder / "runs" / "sooner" / "report.html").is_file()
