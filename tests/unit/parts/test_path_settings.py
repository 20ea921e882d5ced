"""Paths of settings: relative to where they are written, absolute from then on."""

from __future__ import annotations

from copy import deepcopy
from glob import glob
from pathlib import Path

import pytest

from groupwise.parts.part import Part
from groupwise.parts.path_settings import PathText, make_absolute, write_in


class Reads(Part, slot="env"):
    """Reads a file, and has a text beside."""

    path: PathText = ""
    name: str = ""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_path_of_pythons_is_relative_to_the_working_directory(here: Path) -> None:
    assert Reads(path="a.jsonl", name="a.jsonl").config()["path"] == f"{here}/a.jsonl"
    assert Reads(path="../a.jsonl").path == f"{here.parent}/a.jsonl"
    assert Reads(name="a.jsonl").config() == {"kind": f"{__name__}:Reads", "path": "", "name": "a.jsonl"}


def test_a_path_of_a_file_is_relative_to_the_file(here: Path) -> None:
    content = write_in({"path": "a.jsonl", "name": "a.jsonl"}, Path("../there"))
    part = Reads(**deepcopy(content))
    assert (part.path, part.name) == (f"{here.parent}/there/a.jsonl", "a.jsonl")
    assert {type(value) for value in part.config().values()} == {str}


def test_what_is_written_in_a_file_is_equal_to_what_it_was() -> None:
    content = {"a": ["b", {"c": "d"}], "e": 1, "f": True}
    assert write_in(content, Path("there")) == content


@pytest.mark.parametrize("path", ["/data/a.jsonl", "$DATA/games", ""])
def test_what_means_the_same_everywhere_stays(path: str) -> None:
    assert make_absolute(path) == path


def test_the_home_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/mine")
    assert make_absolute("~/a.jsonl") == "/mine/a.jsonl"


def test_above_a_link_is_above_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk" / "runs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "runs")
    assert make_absolute(write_in("../a.jsonl", tmp_path / "link")) == f"{tmp_path}/disk/a.jsonl"


def test_the_folders_own_brackets_are_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "[old]").mkdir()
    (tmp_path / "[old]" / "a.jsonl").touch()
    assert glob(make_absolute(write_in("*.jsonl", tmp_path / "[old]"))) == [f"{tmp_path}/[old]/a.jsonl"]
    assert make_absolute(write_in("a.jsonl", tmp_path / "[old]")) == f"{tmp_path}/[old]/a.jsonl"
