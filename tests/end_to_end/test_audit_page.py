"""docs/howto/audit.md shows what the command that it names prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise import RecordError
from groupwise.cli.main import make_app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "audit.md").read_text(encoding="utf-8")


def test_the_page_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (command,) = re.findall(r"```sh\ngroupwise (audit .*)\n```", PAGE)
    printed = CliRunner().invoke(make_app(), shlex.split(command), catch_exceptions=False).stdout
    lines = {" ".join(line.split()) for line in printed.splitlines()}
    shown = re.findall(r"<!-- audit: \w+ -->\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(shown) == 2
    for line in "".join(shown).splitlines():
        assert " ".join(line.split()) in lines
    assert "31.2 % of the steps were invalid (malformed or rejected by" in " ".join(printed.split())


def test_a_file_that_has_valid_alone_is_refused_by_the_penalty_as_the_page_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    command = ["audit", "benchmarks/results/alfworld_rollouts_hgpo.jsonl.gz", "--method", "hgpo"]
    with pytest.raises(RecordError, match="the table has a column 'valid' but no 'well_formed'"):
        CliRunner().invoke(make_app(), command, catch_exceptions=False)


@pytest.fixture
def completions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand where the page's file of another trainer lies."""
    (content,) = re.findall(r"```jsonl\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "completions.jsonl").write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("completions")
def test_the_page_shows_what_an_audit_by_a_map_of_columns_prints() -> None:
    (command,) = re.findall(r"```bash\ngroupwise (audit completions.*)\n```", PAGE)
    printed = CliRunner().invoke(make_app(), shlex.split(command), catch_exceptions=False).stdout
    (shown,) = re.findall(r"<!-- map: credit -->\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in shown.splitlines():
        assert " ".join(line.split()) in " ".join(printed.split())


@pytest.mark.usefixtures("completions")
def test_the_python_of_the_page_prints_what_it_shows() -> None:
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/howto/audit.md", "exec"), {})
    assert printed.getvalue() == shown
