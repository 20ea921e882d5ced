"""Examples and documents stay alive: run files decode, code blocks run, nothing points into somebody's home."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from conformance.cases import CASES
from groupwise import Algorithm, methods
from groupwise.training.config.run_file import load_algorithm
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
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    shown = re.findall(r"^(\w+)\.values +# rounded: (-?[\d.]+(?:, -?[\d.]+)*)$", block, re.MULTILINE)
    assert [name for name, _ in shown] == ["grpo", "credit"]
    for name, numbers in shown:
        assert names[name].values.round(2).tolist() == [float(number) for number in numbers.split(", ")]
    assert names["credit"].values[0] > 0, "the step that won has a positive advantage"
    compared = re.search(r"credit\.compared +# ((?:True|False)(?:, (?:True|False))*)", block)
    assert compared is not None
    assert [str(flag) for flag in names["credit"].compared.tolist()] == compared[1].split(", ")


def test_the_counts_of_the_readme_are_those_of_what_there_is() -> None:
    text = README.read_text(encoding="utf-8")
    counted = re.findall(r"\[(\d+) methods\]\(docs/reference/methods\.md\)|There are (\d+) methods, of", text)
    assert [int(first or second) for first, second in counted] == [len(methods.names())] * 2
    oracles = (ROOT / "tests" / "oracles" / "test_methods_equal_oracles.py").read_text(encoding="utf-8")
    num_tables = re.search(r"^NUM_TABLES = (\d+) if THOROUGH", oracles, re.MULTILINE)
    assert num_tables is not None
    assert f"on {int(num_tables[1]):,} random tables" in text


def test_the_readme_counts_conformance_cases_as_their_page_does() -> None:
    counted = re.search(
        r"Of \[(\d+) conformance cases\]\(docs/why/conformance\.md\), (\d+) also run on (verl \S+) "
        r"and (\d+) on (TRL \S+)\.",
        README.read_text(encoding="utf-8"),
    )
    assert counted is not None
    page = (ROOT / "conformance" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (?:law|convention) \| (\d+) \| (\d+) \| \d+ \|$", page, re.MULTILINE)
    asked = Counter[str]()
    for library, num_passed, num_failed in rows:
        asked[library] += int(num_passed) + int(num_failed)
    assert int(counted[1]) == len(CASES)
    assert {counted[3]: int(counted[2]), counted[5]: int(counted[4])}.items() <= asked.items()


NUMBERS = ROOT / "conformance" / "numbers.md"
CITED = re.compile(r"\bnumbers, (?=[A-Z])([^\n]{0,60})")
NOT_HERE = re.compile(r"\b(?:objectives|agentic)(?:\.md)? (?:section )?\d|\bspecs/|\bshared/specs")


def list_citations() -> list[tuple[str, str]]:
    """Where tests and conformance cases cite the page of numbers, and the words that follow."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "conformance").rglob("*.py")]
    own = ROOT / "tests" / "architecture" / "test_documents.py"
    return [
        (f"{name_of(path)}: {match[0]}", match[1])
        for path in sorted(files)
        if path != own
        for match in CITED.finditer(path.read_text(encoding="utf-8"))
    ]


def test_what_tests_cite_is_a_section_of_the_page_of_numbers() -> None:
    sections = re.findall(r"^## (.+)$", NUMBERS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(set(sections)) == len(sections) > 20
    cited = list_citations()
    assert len(cited) > 100
    unknown = [place for place, words in cited if not words.startswith(tuple(sections))]
    assert unknown == []


def test_nothing_cites_a_specification_that_is_not_in_the_repository() -> None:
    own = "tests/architecture/test_documents.py"
    places = [f"{name_of(path)}: {match[0]}" for path, text in text_files() if (match := NOT_HERE.search(text))]
    assert [place for place in places if not place.startswith(own)] == []


def test_no_file_points_into_somebodys_home_folder() -> None:
    places = [f"{name_of(path)}: {match[0]}" for path, text in text_files() if (match := HOME.search(text))]
    assert places == []


@pytest.mark.parametrize(
    ("text", "is_home"),
    [
        ("see /" + "home/ada/notes", True),
        ("see /" + "root/x", True),
        ("C:\\" + "Users\\ada", True),
        ("src/groupwise/home/x", False),
        ("https://example.org/" + "home/", False),
    ],
)
def test_home_folders_are_told_from_other_paths(text: str, is_home: bool) -> None:
    assert bool(HOME.search(text)) == is_home
