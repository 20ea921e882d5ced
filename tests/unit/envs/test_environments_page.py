"""The pages of environments are what the environments are: lists, settings, rules, transcripts, Python."""

from __future__ import annotations

import re
from pathlib import Path

import build_environments
import pytest

from groupwise.parts.part import load_catalogue

DOCS = Path(__file__).parents[3] / "docs"
ENVS = DOCS / "reference" / "envs"
LINES = DOCS.parent / "benchmarks" / "pages" / "line_credit.md"
WITHOUT_TRANSCRIPT = {"mixture": "those of its members", "openenv": "needs a server", "webshop": "needs its catalogue"}


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [build_environments.INDEX, build_environments.PROTOCOL, build_environments.STEP_INFO])
def test_lists_are_what_the_script_would_write(path: Path) -> None:
    assert build_environments.fill_blocks(read(path)) == read(path), "run `python docs/build_environments.py`"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", load_catalogue("env"))
def test_settings_and_transcript_are_what_the_script_would_write(kind: str) -> None:
    """A transcript whose package is not installed is not compared."""
    page = read(ENVS / f"{kind}.md")
    assert build_environments.fill_environment(page, kind) == page, "run `python docs/build_environments.py`"


def test_every_environment_has_a_page_with_settings_and_a_transcript() -> None:
    pages = {path.stem: read(path) for path in ENVS.glob("*.md") if path != build_environments.STEP_INFO}
    assert set(pages) == set(load_catalogue("env"))
    assert {kind for kind, page in pages.items() if "<!-- settings -->\n| field |" not in page} == set()
    transcripts = {kind for kind, page in pages.items() if re.search("<!-- transcript.*-->\n```text\n.", page)}
    assert set(pages) - transcripts == set(WITHOUT_TRANSCRIPT)


def test_a_changed_setting_and_a_changed_transcript_are_found() -> None:
    page = read(ENVS / "lookup.md")
    assert "Right." in page
    assert "| `hops` | " in page
    for changed in (page.replace("Right.", "Wrong."), page.replace("| `hops` | ", "| `jumps` | ")):
        assert build_environments.fill_environment(changed, "lookup") == page


@pytest.mark.parametrize("path", [ENVS / "aliased.md", LINES], ids=lambda path: path.stem)
def test_the_python_of_a_page_runs(path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", read(path), re.DOTALL)
    assert "assert " in code
    exec(compile(code, str(path), "exec"), {})
