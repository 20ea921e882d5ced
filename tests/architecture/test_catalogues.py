"""Catalogues hold every part under its name, and every field says what it is."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

import groupwise.advantages
import groupwise.groups
from groupwise import Part
from groupwise.core.parts.part import CATALOGUES, catalogue
from tests.architecture.sources import PACKAGE, name_of, python_files, tree_of

RECORDS = [PACKAGE / "core" / name for name in ("records.py", "credit.py", "step_table.py", "segments.py")]
PART_FILES = [PACKAGE / "core" / "algorithm.py"] + [
    path for folder in ("groups", "advantages") for path in python_files(PACKAGE / folder)
]


CREDIT_SLOTS = [
    slot
    for slot, where in CATALOGUES.items()
    if where.startswith((f"{groupwise.groups.__name__}:", f"{groupwise.advantages.__name__}:"))
]


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def parts_defined_in(package: ModuleType) -> list[type[Part]]:
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)
    ]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Part) and value.__module__ == module.__name__
    ]


@pytest.mark.parametrize("package", [groupwise.groups, groupwise.advantages])
def test_every_part_with_a_slot_is_in_its_catalogue_under_its_name(package: ModuleType) -> None:
    parts = [part for part in parts_defined_in(package) if part.slot]
    assert len(parts) >= 9
    for part in parts:
        assert catalogue(part.slot).get(snake_case(part.__name__)) is part, part.__name__


@pytest.mark.parametrize("slot", CREDIT_SLOTS)
def test_every_kind_is_the_snake_case_of_its_class(slot: str) -> None:
    assert {kind: part.__name__ for kind, part in catalogue(slot).items() if kind != snake_case(part.__name__)} == {}


def test_every_part_is_exported_by_its_package() -> None:
    for package in (groupwise.groups, groupwise.advantages):
        names = {part.__name__ for part in parts_defined_in(package)}
        assert names <= set(package.__all__)


def silent_fields(path: Path, *, parts: bool) -> list[str]:
    """Fields of a file's parts, or of its dataclasses, without a line of their own under them."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef) and (_is_part(node) if parts else _is_dataclass(node)):
            followers = [*node.body[1:], None]
            for statement, follower in zip(node.body, followers, strict=True):
                if _is_public_field(statement) and not _is_text(follower):
                    assert isinstance(statement, ast.AnnAssign)
                    found.append(f"{name_of(path)}:{node.name}.{ast.unparse(statement.target)}")
    return found


def _is_part(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Part" for base in node.bases)


def _is_dataclass(node: ast.ClassDef) -> bool:
    return not node.name.startswith("_") and any("dataclass" in ast.unparse(mark) for mark in node.decorator_list)


def _is_public_field(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
        return False
    return not node.target.id.startswith("_") and "ClassVar" not in ast.unparse(node.annotation)


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_every_field_of_a_part_says_what_it_is() -> None:
    assert [field for path in PART_FILES for field in silent_fields(path, parts=True)] == []


def test_every_field_of_a_record_says_what_it_is() -> None:
    assert [field for path in RECORDS for field in silent_fields(path, parts=False)] == []


def test_a_silent_field_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "silent.py"
    path.write_text('class Loud(Part):\n    said: int\n    """Said."""\n    unsaid: int\n    of: ClassVar[int] = 1\n')
    monkeypatch.setattr("tests.architecture.test_catalogues.name_of", lambda found: found.name)
    assert silent_fields(path, parts=True) == ["silent.py:Loud.unsaid"]
