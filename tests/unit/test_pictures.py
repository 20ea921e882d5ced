"""Every picture of the docs is what its command, which CONTRIBUTING.md names, draws from the results."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = Path("docs", "images")
ROW = re.compile(r"^\| (`\w+\.(?:svg|png)`[^|]*) \| ([^|]+) \| ([^|]*)\|$", re.MULTILINE)


def list_rows() -> list[tuple[list[str], str, list[str]]]:
    """Pictures, their command (empty where there is none) and the results that it reads, as the table has them."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = []
    for pictures, said, results in ROW.findall(text):
        command = re.fullmatch(r"`(python [^`]+)`", said)
        rows.append(
            (re.findall(r"`([^`]+)`", pictures), command[1] if command else "", re.findall(r"`([^`]+)`", results))
        )
    return rows


DRAWN = [row for row in list_rows() if row[1]]
BY_MODULE = [row for row in DRAWN if row[1].startswith("python -m ")]
BY_SCRIPT = [row for row in DRAWN if row[1].startswith("python docs/")]


def test_the_table_has_every_picture_once_and_a_command_for_all_that_are_drawn() -> None:
    listed = [picture for pictures, _, _ in list_rows() for picture in pictures]
    assert sorted(listed) == sorted(path.name for path in (ROOT / IMAGES).iterdir())
    drawn = {picture for pictures, _, _ in DRAWN for picture in pictures}
    assert drawn == {path.name for path in (ROOT / IMAGES).glob("*.svg")}
    assert len(BY_MODULE) + len(BY_SCRIPT) == len(DRAWN)
    assert all((ROOT / "benchmarks" / "results" / result).is_file() for _, _, results in DRAWN for result in results)


@pytest.mark.parametrize("row", BY_MODULE, ids=lambda row: row[0][0])
def test_a_module_draws_the_committed_picture_from_its_result(
    row: tuple[list[str], str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [picture], command, [result] = row
    _, _, module, *options = command.split()
    name = f"benchmarks/results/{result}"
    assert name in options
    monkeypatch.chdir(tmp_path)
    IMAGES.mkdir(parents=True)
    run_module(module, [str(ROOT / name) if option == name else option for option in options])
    assert (IMAGES / picture).read_bytes() == (ROOT / IMAGES / picture).read_bytes()
    assert [path.name for path in IMAGES.iterdir()] == [picture]


def run_module(module: str, options: list[str]) -> None:
    """What `python -m` does, in this process."""
    is_package = hasattr(importlib.import_module(module), "__path__")
    importlib.import_module(f"{module}.__main__" if is_package else module).main(options)


@pytest.mark.parametrize("row", BY_SCRIPT, ids=lambda row: row[1])
def test_a_script_finds_the_committed_pictures_up_to_date_and_a_changed_one_stale(
    row: tuple[list[str], str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, command, _ = row
    script = importlib.import_module(Path(command.split()[1]).stem)
    assert run_check(script) in (None, 0)
    for picture in pictures:
        with monkeypatch.context() as changed:
            changed.setattr(Path, "read_text", read_all_but(picture))
            assert picture in str(run_check(script))


def run_check(script: ModuleType) -> object:
    """What a script's check says; nothing where all is as it would be."""
    try:
        script.main(["--check"])
    except SystemExit as end:
        return end.code
    return None


def read_all_but(name: str) -> Callable[..., str]:
    """A way to read files in which one has another text."""
    read = Path.read_text
    return lambda path, **options: "changed" if path.name == name else read(path, **options)
