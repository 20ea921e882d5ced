"""The folder of a run: every name once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupwise.store import run_folder
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import FileError

NAMES = {value for name, value in vars(run_folder).items() if name.isupper() and isinstance(value, str)}
SOURCES = Path(run_folder.__file__).parents[1]


def test_every_file_has_its_place(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    places = (paths.config, paths.journal, paths.checkpoints, paths.bookmarks, paths.report, paths.weights)
    assert [path.name for path in places] == [
        "config.toml",
        "journal.sqlite",
        "checkpoints",
        "trackers.json",
        "report.html",
        "weights",
    ]
    assert paths.latest == tmp_path / "checkpoints" / "latest"
    assert paths.checkpoint(12) == tmp_path / "checkpoints" / "0012"
    assert paths.checkpoint(123456).name == "123456"


def test_a_folder_holds_a_run_from_its_journal_or_its_checkpoints_on(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.write_config({"seed": 1})
    assert not paths.holds_run(), "settings alone are no run"
    paths.checkpoints.mkdir()
    assert paths.holds_run()
    paths.checkpoints.rmdir()
    paths.journal.touch()
    assert paths.holds_run()


def test_settings_are_written_whole_and_make_their_folder(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "new" / "run")
    paths.write_config({"seed": 3, "env": {"kind": "identity"}})
    assert paths.config.read_text() == 'seed = 3\n\n[env]\nkind = "identity"\n'
    assert [path.name for path in paths.folder.iterdir()] == ["config.toml"]


def test_settings_that_cannot_be_written_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError) as caught:
        RunPaths(tmp_path / "file").write_config({})
    assert str(caught.value) == (
        f"{tmp_path / 'file' / 'config.toml'}: cannot be written (File exists); free some space, or use another folder"
    )


def test_no_other_file_of_the_package_spells_these_names_as_paths() -> None:
    """A name that stands twice can come to differ."""
    assert {"config.toml", "journal.sqlite", "checkpoints", "latest", "run.lock"} <= NAMES
    listed = "|".join(map(re.escape, sorted(NAMES)))
    spelled = re.compile(rf"/ \"({listed})\"|^[A-Z_]+ = \"({listed})\"")
    places = [
        f"{path.relative_to(SOURCES)}: {line.strip()}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path != Path(run_folder.__file__)
        for line in path.read_text(encoding="utf-8").splitlines()
        if spelled.search(line)
    ]
    assert places == []
