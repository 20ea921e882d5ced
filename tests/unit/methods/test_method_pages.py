"""The pages in docs/methods are written by a script from the docstrings; nobody edits one and forgets the other."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from groupwise import methods

SCRIPT = Path(__file__).parents[3] / "docs" / "build_methods.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_methods", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_what_the_script_would_write(script: ModuleType) -> None:
    stale = [path.name for path, text in script.pages().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `python docs/build_methods.py`"


def test_there_is_a_page_for_every_method(script: ModuleType) -> None:
    names = {path.stem for path in script.FOLDER.glob("*.md")}
    assert names == set(methods.names())


def test_relations_are_told_of_methods_that_exist(script: ModuleType) -> None:
    assert set(script.RELATIONS) <= set(methods.names())
