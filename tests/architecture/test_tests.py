"""Tests stand by themselves: what several share has its own module, and unit tests follow the rooms of the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.sources import PACKAGE, ROOT, name_of, python_files, tree_of

TESTS = ROOT / "tests"
IN_A_SCRIPT = re.compile(r"from +(tests\.[\w.]*\btest_\w+) +import")
"""An import in the text of a program that a test starts."""


def modules_imported(tree: ast.Module) -> set[str]:
    """The modules that a file may import, in full: `from a import b` may mean a, or the module a.b."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            modules |= set(IN_A_SCRIPT.findall(node.value))
    return modules


def imports_of_tests(paths: list[Path]) -> list[str]:
    """Where one of the files imports from a file of tests, and which."""
    return [
        f"{path.name}: {module}"
        for path in paths
        for module in sorted(modules_imported(tree_of(path)))
        if module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")
    ]


def test_nothing_is_imported_from_a_file_of_tests() -> None:
    paths = python_files(ROOT)
    assert len(paths) > 1000
    assert imports_of_tests(paths) == []


TEST_FILES = "tests.unit.test"


def test_an_import_from_a_file_of_tests_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        f"from {TEST_FILES}_a import play\n"
        "from tests.unit import test_b, tables\n"
        f"import {TEST_FILES}_c as again\n"
        "from groupwise import Task\n"
        f"SCRIPT = 'import sys; from {TEST_FILES}_d import play'\n"
        f"NAME = '{TEST_FILES}_e.play'\n"
    )
    assert imports_of_tests([path]) == [f"script.py: {TEST_FILES}_{letter}" for letter in "abcd"]


def test_the_folders_of_unit_tests_are_those_of_the_source() -> None:
    folders = {path.parent.relative_to(TESTS / "unit") for path in python_files(TESTS / "unit") if is_test(path)}
    assert len(folders) > 15
    assert sorted(folder.as_posix() for folder in folders if not (PACKAGE / folder).is_dir()) == []


def test_every_room_of_the_source_has_unit_tests() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    tested = {path.relative_to(TESTS / "unit").parts[0] for path in python_files(TESTS / "unit") if is_test(path)}
    assert len(rooms) > 10
    assert sorted(rooms - tested) == []


def test_a_folder_of_tests_is_a_package() -> None:
    """Two files of one name in folders that are none would be one module to pytest."""
    folders = {path.parent for path in python_files(TESTS) if is_test(path)}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def is_test(path: Path) -> bool:
    return path.name.startswith("test_")
