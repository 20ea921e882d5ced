"""The page about the format is true: its example file is read, its code runs, its table lists every key."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

from groupwise.store import KEYS, RolloutsFile

DOCS = Path(__file__).parents[3] / "docs"
SCRIPT = DOCS / "build_step_fields.py"
PAGE = (DOCS / "reference" / "rollouts.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (example,) = [text for kind, text in BLOCKS if kind == "jsonl"]
    (tmp_path / "rollouts.jsonl").write_text(example, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_code_runs_and_prints_what_the_page_says(folder: Path) -> None:
    followed_by_output = 0
    for (kind, text), (next_kind, output) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
        if kind != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "docs/reference/rollouts.md", "exec"), {})
        if next_kind == "text":
            assert printed.getvalue() == output
            followed_by_output += 1
    assert followed_by_output == 2


def test_the_example_is_a_proper_file(folder: Path) -> None:
    (chunk,) = RolloutsFile.open("rollouts.jsonl").chunks()
    assert len(chunk.table()) == 5


def test_the_error_shown_is_the_error_met(folder: Path) -> None:
    with Path("rollouts.jsonl").open("a", encoding="utf-8") as file:
        file.write(
            '{"task": "find-mug", "rollout": 2, "step": 0, "reward": NaN, "well_formed": true, "accepted": true}\n'
        )
    with pytest.raises(ValueError) as caught:
        list(RolloutsFile.open("rollouts.jsonl").rows())
    assert ("text", f"{caught.value}\n") in BLOCKS


def test_the_table_is_the_one_in_the_code() -> None:
    spec = importlib.util.spec_from_file_location("build_step_fields", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.page(PAGE) == PAGE, "run `python docs/build_step_fields.py`"


def test_the_table_lists_every_key_and_what_it_takes() -> None:
    rows = re.findall(r"^\| `(\w+)`(.*?) \| (.*?) \|", PAGE[PAGE.index("## The row") : PAGE.index("¹ On")], flags=re.M)
    columns_alone = {"age", "off_policy", "trains"}
    assert sorted(name for name, _, _ in rows if name not in columns_alone) == sorted(KEYS)
    assert {name for name, mark, _ in rows if "required" in mark} == {"task", "rollout", "step", "reward"}
    assert {name for name, mark, _ in rows if "¹" in mark} == {
        "group", "well_formed", "accepted", "valid", "cut", "outcome", "accuracy", "tokens", "response_ids"
    }  # fmt: skip
