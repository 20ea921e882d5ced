"""Names of files and folders."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.sources import PACKAGE, ROOT, files, name_of, python_files

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base", "types"}


def vague_words(name: str) -> set[str]:
    """The words of a path, folders included, that say nothing of what is in it."""
    return VAGUE_NAMES & {word for part in Path(name).with_suffix("").parts for word in re.split(r"[_\-.]", part)}


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    """Files of every kind, in every folder of the repository."""
    assert [name for name in map(name_of, files(ROOT)) if vague_words(name)] == []


def test_vague_words_are_found_in_folders_and_within_names() -> None:
    assert vague_words("src/groupwise/utils/deep/lake.py") == {"utils"}
    assert vague_words("docs/test_helpers.md") == {"helpers"}
    assert vague_words("src/groupwise/data/database.py") == set()


def test_every_folder_of_sources_is_a_package() -> None:
    """The linter of imports sees no folder without an `__init__.py`."""
    folders = {path.parent for path in python_files(PACKAGE)}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
