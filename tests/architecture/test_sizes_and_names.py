"""Size budgets, file names, and what an `__init__.py` may hold."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.sources import OUR_FOLDERS, PACKAGE, ROOT, name_of, python_files, tree_of

LARGEST_FILE = 400
LARGEST_PART_FILE = 120
LARGEST_TEST_FILE = 500
LARGEST_FUNCTION = 50
LARGEST_RECIPE = 40

EXCEPTIONS: dict[str, str] = {}
"""What may exceed its budget ("path" or "path:function"), each with the reason."""

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base", "types"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, Function)]


def length(function: Function) -> int:
    """Lines from `def` to the end, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def too_long(files: list[Path], budget: int) -> dict[str, int]:
    found = {name_of(path): num_lines(path) for path in files}
    return {name: lines for name, lines in found.items() if lines > budget and name not in EXCEPTIONS}


def test_no_source_file_has_more_than_400_lines() -> None:
    assert too_long(python_files(PACKAGE), LARGEST_FILE) == {}


def test_no_file_of_credit_parts_has_more_than_120_lines() -> None:
    files = [path for folder in ("groups", "advantages") for path in python_files(PACKAGE / folder)]
    assert len(files) > 10
    assert too_long(files, LARGEST_PART_FILE) == {}


def test_no_test_file_has_more_than_500_lines() -> None:
    assert too_long(python_files(ROOT / "tests"), LARGEST_TEST_FILE) == {}


def test_no_function_has_more_than_50_lines() -> None:
    found = {
        f"{name_of(path)}:{function.name}": length(function)
        for path in python_files(PACKAGE)
        for function in functions(path)
        if length(function) > LARGEST_FUNCTION
    }
    assert {name: lines for name, lines in found.items() if name not in EXCEPTIONS} == {}


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
        assert not function or function in {found.name for found in functions(ROOT / path)}, name


def test_no_file_has_a_name_that_says_nothing() -> None:
    files = [path for folder in OUR_FOLDERS if (ROOT / folder).is_dir() for path in python_files(ROOT / folder)]
    vague = [name_of(path) for path in files if VAGUE_NAMES & {path.stem, path.parent.name}]
    assert vague == []


def test_packages_only_collect_names() -> None:
    defined = [
        f"{name_of(path)}:{node.name}"
        for path in python_files(PACKAGE)
        if path.name == "__init__.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, Function | ast.ClassDef)
    ]
    assert defined == []
