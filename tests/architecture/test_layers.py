"""Who may import whom, as pyproject.toml states it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from tests.architecture.sources import PACKAGE, ROOT, python_files

MAY_IMPORT_TORCH = {"models", "engines", "learner", "training"}
"""Packages that compute with tensors. Losses call methods of tensors that they are given, and import nothing."""


def contract(kind: str) -> dict[str, Any]:
    """The one contract of a kind."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (chosen,) = [each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == kind]
    return chosen


def list_placed() -> list[str]:
    """What the contract of the layers places, from the top."""
    return [name.strip() for layer in contract("layers")["layers"] for name in layer.split("|")]


def check_skeleton(root: Path, *, planted: str | None = None, importer: str | None = None) -> tuple[int, str]:
    """Hold the contract of the layers against a package of the same rooms, all empty but for what is planted."""
    for name in [*list_placed(), *([planted] if planted else [])]:
        folder = root / "groupwise" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"import groupwise.{planted or 'cli'}\n" if name == importer else "")
    (root / "groupwise" / "__init__.py").touch()
    settings = {"root_package": "groupwise", "contracts": [contract("layers")]}
    (root / "pyproject.toml").write_text(tomli_w.dumps({"tool": {"importlinter": settings}}))
    return run_linter(root, path=root)


def run_linter(root: Path, *, path: Path) -> tuple[int, str]:
    """Run import-linter in a folder, in a process of its own: it silences every logger that exists already."""
    linted = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return linted.returncode, linted.stdout + linted.stderr


def test_the_layers_hold() -> None:
    status, report = run_linter(ROOT, path=PACKAGE.parent)
    assert status == 0, report


def test_the_rooms_alone_keep_the_contract(tmp_path: Path) -> None:
    assert check_skeleton(tmp_path)[0] == 0


def test_a_package_that_nobody_placed_breaks_the_contract(tmp_path: Path) -> None:
    status, printed = check_skeleton(tmp_path, planted="attic")
    assert status == 1
    assert "groupwise.attic" in printed


def test_an_import_from_above_breaks_the_contract(tmp_path: Path) -> None:
    status, printed = check_skeleton(tmp_path, importer="data")
    assert status == 1
    assert "groupwise.data is not allowed to import groupwise.cli" in printed


def test_every_package_is_without_torch_but_those_that_compute_with_tensors() -> None:
    sources = {name.removeprefix("groupwise.") for name in contract("forbidden")["source_modules"]}
    assert contract("forbidden")["forbidden_modules"] == ["torch"]
    assert sources == set(list_placed()) - MAY_IMPORT_TORCH


def test_the_page_on_the_architecture_names_every_package() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    assert len(packages) > 10
    assert [name for name in packages if f"`{name}`" not in page and f"{name}/" not in page] == []


def test_the_commands_print_through_one_file_only() -> None:
    """What is recorded may hold anything; `cli/screen.py` escapes it, so that nobody can forget to."""
    ways = ("typer.echo", "click.echo", "sys.stdout.write", "Console(", "typer.secho")
    files = python_files(PACKAGE / "cli")
    assert len(files) > 20
    places = [
        f"{path.name}: {way}"
        for path in files
        for way in ways
        if path.name != "screen.py" and way in path.read_text(encoding="utf-8")
    ]
    assert places == []
