"""`make release-check` finds what a release lacks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.check_release import ROOT, find_errors, find_versions, find_warnings

FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "src/groupwise/__init__.py")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that a release check reads."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_repository_has_no_error() -> None:
    assert find_errors(ROOT) == []
    assert set(find_versions(ROOT).values()) == {"0.1.0"}


@pytest.mark.parametrize(
    ("file", "old", "new", "error"),
    [
        ("CITATION.cff", "version: 0.1.0", "version: 0.2.0", "CITATION.cff: the version is 0.2.0, expected 0.1.0"),
        (
            "CITATION.cff",
            "license: Apache-2.0",
            "license: MIT",
            "CITATION.cff: the license is MIT, expected Apache-2.0",
        ),
        ("README.md", "groupwise-0.1.0-py3", "groupwise-0.0.9-py3", "README.md: the version is 0.0.9"),
        ("src/groupwise/__init__.py", "__version__ = ", "_version = ", "__init__.py: the version is missing"),
        ("CHANGELOG.md", "## 0.1.0", "## 0.0.9", "CHANGELOG.md: there is no section for 0.1.0"),
        ("pyproject.toml", 'requires-python = ">=3.11"\n', "", "pyproject.toml: [project] has no requires-python"),
    ],
)
def test_an_error_is_found(copy: Path, file: str, old: str, new: str, error: str) -> None:
    text = (copy / file).read_text(encoding="utf-8")
    assert old in text
    (copy / file).write_text(text.replace(old, new), encoding="utf-8")
    [found] = find_errors(copy)
    assert error in found


def test_what_a_first_release_still_needs_is_a_warning(copy: Path) -> None:
    (copy / "README.md").write_text("[a](b.md) [c](https://example.org)", encoding="utf-8")
    assert any(warning.startswith("README.md: 1 relative links and pictures") for warning in find_warnings(copy))
    text = (copy / "pyproject.toml").read_text(encoding="utf-8")
    assert any("[project.urls] is missing" in warning for warning in find_warnings(copy))
    (copy / "pyproject.toml").write_text(text + '\n[project.urls]\nSource = "https://example.org"\n', encoding="utf-8")
    assert not any("[project.urls]" in warning for warning in find_warnings(copy))
