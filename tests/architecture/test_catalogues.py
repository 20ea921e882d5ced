"""Catalogues hold every part under its name, and every field says what it is."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from groupwise.parts.part import CATALOGUES, load_catalogue
from tests.architecture.sources import PACKAGE, name_of, python_files, tree_of

RECORD_PACKAGES = (
    "system",
    "data",
    "parts",
    "credit",
    "losses",
    "methods",
    "training/config",
    "training/evaluation",
    "cli",
)
"""Packages in which every field of a public dataclass says what it is. In the others dataclasses are the insides of an
engine, a world, a reader or a run, whose fields are mostly called what they hold."""

KINDS_OF_THEIR_OWN = {
    ("learner", "local"): "LearnerConfig",
    ("learner", "sharded"): "ShardedLearnerConfig",
    ("engine", "server"): "ServerEngineConfig",
    ("engine", "vllm"): "VllmServerConfig",
}
"""Kinds that are not called as their class is, by slot: the settings of the local learner are read as a section, and
those of servers are not the engine that speaks to them."""


class PlacedPart(NamedTuple):
    """A class of the package that fills a slot."""

    module: str
    name: str
    slot: str


@cache
def list_parts() -> tuple[PlacedPart, ...]:
    """Every class in any file of the package that says which slot it fills."""
    return tuple(
        PlacedPart(_module_name(path), node.name, ast.literal_eval(keyword.value))
        for path in python_files(PACKAGE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
        for keyword in node.keywords
        if keyword.arg == "slot"
    )


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def kinds_for(name: str, slot: str) -> set[str]:
    """What a class may be called in a run file: its name, with or without the slot at the end."""
    whole = snake_case(name)
    return {whole, whole.removesuffix(f"_{slot}")}


def test_every_part_with_a_slot_is_in_its_catalogue_under_its_name() -> None:
    parts = list_parts()
    assert {part.slot for part in parts} == set(CATALOGUES)
    missing = [part for part in parts if not is_catalogued(part)]
    assert missing == []


def is_catalogued(part: PlacedPart) -> bool:
    """Whether the slot's catalogue holds the class, once, under a name that follows from its own."""
    kinds = [
        kind
        for kind, chosen in load_catalogue(part.slot).items()
        if (chosen.__module__, chosen.__name__) == (part.module, part.name)
    ]
    if len(kinds) != 1:
        return False
    return kinds[0] in kinds_for(part.name, part.slot) or KINDS_OF_THEIR_OWN.get((part.slot, kinds[0])) == part.name


@pytest.mark.parametrize("slot", CATALOGUES)
def test_a_catalogue_holds_parts_of_the_package_only(slot: str) -> None:
    known = {(part.module, part.name) for part in list_parts()}
    assert [part for part in load_catalogue(slot).values() if (part.__module__, part.__name__) not in known] == []


def test_a_part_that_is_in_no_catalogue_would_be_seen() -> None:
    assert is_catalogued(PlacedPart("groupwise.credit.groupers", "ByTask", "grouper"))
    assert not is_catalogued(PlacedPart("groupwise.credit.groupers", "ByColour", "grouper"))
    assert not is_catalogued(PlacedPart("groupwise.credit.groupers", "ByTask", "filter"))


def test_every_part_is_exported_by_its_package() -> None:
    silent = [part for part in list_parts() if part.name not in list_names(".".join(part.module.split(".")[:2]))]
    assert silent == []


def list_names(package: str) -> Iterable[str]:
    """What a package exports: its `__all__`, or whatever it imports."""
    module = importlib.import_module(package)
    return getattr(module, "__all__", vars(module))


def silent_fields(path: Path, *, parts: bool) -> list[str]:
    """Fields of a file's parts, or of its dataclasses, without a line of their own under them."""
    silent = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef) and (_is_part(node) if parts else _is_dataclass(node)):
            followers = [*node.body[1:], None]
            for statement, follower in zip(node.body, followers, strict=True):
                if _is_public_field(statement) and not _is_text(follower):
                    assert isinstance(statement, ast.AnnAssign)
                    silent.append(f"{name_of(path)}:{node.name}.{ast.unparse(statement.target)}")
    return silent


def _is_part(node: ast.ClassDef) -> bool:
    fills_a_slot = any(keyword.arg == "slot" for keyword in node.keywords)
    return fills_a_slot or any(isinstance(base, ast.Name) and base.id == "Part" for base in node.bases)


def _is_dataclass(node: ast.ClassDef) -> bool:
    return not node.name.startswith("_") and any("dataclass" in ast.unparse(mark) for mark in node.decorator_list)


def _is_public_field(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
        return False
    return not node.target.id.startswith("_") and "ClassVar" not in ast.unparse(node.annotation)


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_every_field_of_a_part_says_what_it_is() -> None:
    """Of parts in any package, the sections of a run file among them."""
    assert [field for path in python_files(PACKAGE) for field in silent_fields(path, parts=True)] == []


@pytest.mark.parametrize("package", RECORD_PACKAGES)
def test_every_field_of_a_record_says_what_it_is(package: str) -> None:
    paths = python_files(PACKAGE / package)
    assert paths
    assert [field for path in paths for field in silent_fields(path, parts=False)] == []


def test_a_silent_field_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "silent.py"
    path.write_text('class Loud(Part):\n    said: int\n    """Said."""\n    unsaid: int\n    of: ClassVar[int] = 1\n')
    monkeypatch.setattr("tests.architecture.test_catalogues.name_of", lambda path: path.name)
    assert silent_fields(path, parts=True) == ["silent.py:Loud.unsaid"]
