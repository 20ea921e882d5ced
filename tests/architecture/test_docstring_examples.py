"""The `>>>` examples of docstrings are run, and print what stands below them."""

from __future__ import annotations

import doctest
import importlib
import os
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture.sources import ROOT, name_of, python_files

PROMPT = re.compile(r"^ *>>> ", re.MULTILINE)
FOLDERS = ("src", "benchmarks", "conformance", "docs", "examples")
FILES = [
    path
    for folder in FOLDERS
    for path in python_files(ROOT / folder)
    if PROMPT.search(path.read_text(encoding="utf-8"))
]
ON_THE_PATH = [ROOT / "src", ROOT / "docs", ROOT / "examples", ROOT]
"""Folders that modules are imported from, by a name that begins there."""
OPTIONAL = ("torch", "textworld")
"""Packages that a file with examples imports, and that an installation may lack."""


def import_file(path: Path) -> ModuleType:
    """The module of a file."""
    root = next(root for root in ON_THE_PATH if root in path.parents)
    return importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"))


def find_faults(module: ModuleType, text: str) -> list[str]:
    """What doctest says of each example that fails, and how many examples in the file's text it does not find."""
    faults: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    tests = doctest.DocTestFinder().find(module, module.__name__)
    for test in tests:
        runner.run(test, out=faults.append)
    missed = len(PROMPT.findall(text)) - sum(len(test.examples) for test in tests)
    return faults + [f"{missed} examples are in no docstring that doctest finds"] * (missed != 0)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_examples_print_what_stands_below_them(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    # The package alfworld sets this variable when it is imported, and makes the folder; other tests read it.
    monkeypatch.setenv("ALFWORLD_DATA", os.environ.get("ALFWORLD_DATA", str(tmp_path)))
    try:
        module = import_file(path)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{name_of(path)} needs the package {error.name}")
    assert find_faults(module, path.read_text(encoding="utf-8")) == []


def test_every_folder_with_sources_is_looked_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == {"src", "benchmarks", "docs", "examples"}
    assert len(FILES) > 70


@pytest.mark.parametrize(
    ("docstring", "faults"),
    [(">>> double(2)\n4", 0), (">>> double(2)\n5", 1), (">>> twice(2)\n4", 1)],
)
def test_an_example_that_fails_is_found(docstring: str, faults: int) -> None:
    text = f'def double(number):\n    """\n{docstring}\n"""\n    return 2 * number\n'
    module = ModuleType("doubled")
    exec(text, vars(module))
    assert len([fault for fault in find_faults(module, text) if "Failed example" in fault]) == faults


def test_an_example_that_doctest_does_not_find_is_counted() -> None:
    text = 'TWO = 2\n"""\n>>> TWO\n2\n"""\n'
    module = ModuleType("two")
    exec(text, vars(module))
    assert find_faults(module, text) == ["1 examples are in no docstring that doctest finds"]
