"""The repository's own files, for the tests that read them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "groupwise"

NOT_OURS = {"mutants", "runs", "demo", "dist", "build", "site", "shared"}
"""Folders beside the sources that tools make; hidden ones (.git, .venv, .peers, caches) are left out as well."""


def python_files(folder: Path) -> list[Path]:
    return [path for path in files(folder) if path.suffix == ".py"]


def text_files() -> Iterator[tuple[Path, str]]:
    """Every file of the repository that is UTF-8 text."""
    for path in files(ROOT):
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def files(folder: Path) -> list[Path]:
    """The files below a folder, without those that tools made."""
    paths: list[Path] = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _is_ours(Path(where) / name)]
        paths += [Path(where) / name for name in names]
    return sorted(paths)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _is_ours(folder: Path) -> bool:
    hidden = folder.name.startswith(".") and folder.name != ".ci"
    return not hidden and folder.name != "__pycache__" and not (folder.parent == ROOT and folder.name in NOT_OURS)
