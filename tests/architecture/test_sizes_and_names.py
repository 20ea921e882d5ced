"""Size budgets, file names, and what an `__init__.py` may hold."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.sources import PACKAGE, ROOT, files, name_of, python_files, tree_of

LARGEST_FILE = 400
LARGEST_PART_FILE = 140
LARGEST_TEST_FILE = 500
LARGEST_FUNCTION = 50
LARGEST_RECIPE = 40

EXCEPTIONS: dict[str, str] = {
    "src/groupwise/credit/__init__.py": "a catalogue, with three lines for each part",
    "src/groupwise/credit/estimators.py": "a part with its trace, which says what the part compared",
    "src/groupwise/report/explain.py": "one topic: how each kind of trace is explained",
    "tests/oracles/history.py:hgpo": "one method, read off its paper in one loop",
}
"""What may exceed its budget ("path" or "path:function"), each with the reason."""

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base", "types"}

CREDIT_PACKAGES = ("groups", "advantages", "rewards")
"""Packages whose files are parts, one idea each."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, Function)]


def length(function: Function) -> int:
    """Lines from `def` to the end, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def too_long(paths: list[Path], budget: int) -> dict[str, int]:
    lengths = {name_of(path): num_lines(path) for path in paths}
    return {name: lines for name, lines in lengths.items() if lines > budget and name not in EXCEPTIONS}


def is_test(path: Path) -> bool:
    return path.is_relative_to(ROOT / "tests")


def test_no_file_but_tests_has_more_than_400_lines() -> None:
    """The package, and the benchmarks, scripts, examples and conformance cases beside it."""
    paths = [path for path in python_files(ROOT) if not is_test(path)]
    assert {path.relative_to(ROOT).parts[0] for path in paths} >= {"src", "benchmarks", "conformance", "docs"}
    assert too_long(paths, LARGEST_FILE) == {}


def test_no_file_of_credit_parts_has_more_than_120_lines() -> None:
    paths = [path for folder in CREDIT_PACKAGES for path in python_files(PACKAGE / folder)]
    assert len(paths) > 20
    assert too_long(paths, LARGEST_PART_FILE) == {}


def test_no_part_has_more_than_120_lines() -> None:
    """Of whatever slot, in whatever package: losses, pairings and measures too, whose files may hold several."""
    parts = [
        (f"{name_of(path)}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for path in python_files(PACKAGE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and any(keyword.arg == "slot" for keyword in node.keywords)
    ]
    assert len(parts) > 150
    assert {name: lines for name, lines in parts if lines > LARGEST_PART_FILE and name not in EXCEPTIONS} == {}


def test_no_test_file_has_more_than_500_lines() -> None:
    assert too_long(python_files(ROOT / "tests"), LARGEST_TEST_FILE) == {}


def test_no_function_has_more_than_50_lines() -> None:
    long = {
        f"{name_of(path)}:{function.name}": length(function)
        for path in python_files(ROOT)
        for function in functions(path)
        if length(function) > LARGEST_FUNCTION
    }
    assert {name: lines for name, lines in long.items() if name not in EXCEPTIONS} == {}


def test_no_recipe_has_more_than_40_lines() -> None:
    recipes = [
        (f"{name_of(path)}:{function.name}", length(function))
        for path in python_files(PACKAGE / "recipes")
        for function in functions(path)
        if any(isinstance(mark, ast.Name) and mark.id == "recipe" for mark in function.decorator_list)
    ]
    assert len(recipes) >= 15
    assert {name: lines for name, lines in recipes if lines > LARGEST_RECIPE and name not in EXCEPTIONS} == {}


def test_every_exception_is_still_needed() -> None:
    for name in EXCEPTIONS:
        path, _, function = name.partition(":")
        assert (ROOT / path).exists(), name
        assert not function or function in {each.name for each in functions(ROOT / path)}, name


def vague_words(name: str) -> set[str]:
    """The words of a path, folders included, that say nothing of what is in it."""
    return VAGUE_NAMES & {word for part in Path(name).with_suffix("").parts for word in re.split(r"[_\-.]", part)}


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    """Files of every kind, in every folder of the repository."""
    assert [name for name in map(name_of, files(ROOT)) if vague_words(name)] == []


def test_vague_words_are_found_in_folders_and_within_names() -> None:
    assert vague_words("src/groupwise/utils/deep/lake.py") == {"utils"}
    assert vague_words("docs/test_helpers.md") == {"helpers"}
    assert vague_words("src/groupwise/core/database.py") == set()


def test_every_folder_of_sources_is_a_package() -> None:
    """The linter of imports sees no folder without an `__init__.py`."""
    folders = {path.parent for path in python_files(PACKAGE)}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_packages_only_collect_names() -> None:
    defined = [
        f"{name_of(path)}:{node.name}"
        for path in python_files(PACKAGE)
        if path.name == "__init__.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, Function | ast.ClassDef)
    ]
    assert defined == []
