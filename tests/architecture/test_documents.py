"""Examples and documents stay alive: run files decode, code blocks run, nothing points into somebody's home."""

from __future__ import annotations

import re

import pytest

from groupwise import Algorithm
from groupwise.recipes.run_file import load_algorithm
from tests.architecture.sources import ROOT, name_of, text_files

README = ROOT / "README.md"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOME = re.compile(r"(?<![\w.])/(?:home|Users|root)/[\w.-]|[A-Za-z]:\\Users\\")


def test_every_run_file_of_the_examples_decodes() -> None:
    for path in sorted((ROOT / "examples").rglob("*.toml")):
        assert isinstance(load_algorithm(path), Algorithm), name_of(path)


def test_the_python_blocks_of_the_readme_run_one_after_another() -> None:
    blocks = PYTHON_BLOCK.findall(README.read_text(encoding="utf-8"))
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


def test_the_readme_gives_the_numbers_that_come_out() -> None:
    block = PYTHON_BLOCK.findall(README.read_text(encoding="utf-8"))[0]
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    credit = names["credit"]
    told = re.search(r"credit\.values +# .*?: (-?[\d.]+(?:, -?[\d.]+)*)", block)
    assert told is not None
    # Epsilon keeps the numbers a few millionths short of the round ones.
    expected = pytest.approx([float(number) for number in told[1].split(", ")], abs=1e-5)
    assert credit.values.tolist() == expected  # type: ignore[attr-defined]
    compared = re.search(r"credit\.compared +# ((?:True|False)(?:, (?:True|False))*)", block)
    assert compared is not None
    assert [str(flag) for flag in credit.compared.tolist()] == compared[1].split(", ")  # type: ignore[attr-defined]


def test_no_file_points_into_somebodys_home_folder() -> None:
    found = [f"{name_of(path)}: {match[0]}" for path, text in text_files() if (match := HOME.search(text))]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("see /" + "home/ada/notes", True),
        ("see /" + "root/x", True),
        ("C:\\" + "Users\\ada", True),
        ("src/groupwise/home/x", False),
        ("https://example.org/" + "home/", False),
    ],
)
def test_home_folders_are_told_from_other_paths(text: str, is_found: bool) -> None:
    assert bool(HOME.search(text)) == is_found
