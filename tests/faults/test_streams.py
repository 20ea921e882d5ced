"""Streams that are closed, full or of another locale: no traceback, a status that says what happened."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.installed import run_installed
from tests.unit.cli.files import row, write


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with characters that few locales have."""
    rows = [row("Küche→☃", str(rollout), 0, "s", float(rollout), action="öffne 😀") for rollout in range(2)]
    return write(tmp_path_factory.mktemp("streams") / "rollouts.jsonl", rows)


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["C", "ascii", "latin-1"],
)
def test_a_locale_without_a_character_costs_that_character_only(locale: dict[str, str], rollouts: Path) -> None:
    ran = run_installed("audit", rollouts.name, cwd=rollouts.parent, env=locale)
    assert ran.returncode == 0, ran.stderr
    assert b"?" in ran.stdout
    assert b"Traceback" not in ran.stderr


def test_whoever_has_read_enough_gets_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        ran = run_installed("methods", cwd=tmp_path, stdout=pipe)
    assert (ran.returncode, ran.stderr) == (1, b"")


def test_json_into_a_pipe_that_is_closed_gets_no_traceback(rollouts: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        ran = run_installed("audit", rollouts.name, "--json", cwd=rollouts.parent, stdout=pipe)
    assert (ran.returncode, ran.stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_behind_standard_output_is_one_line(rollouts: Path) -> None:
    for arguments in (("audit", rollouts.name), ("audit", rollouts.name, "--json")):
        with open("/dev/full", "wb") as full:
            ran = run_installed(*arguments, cwd=rollouts.parent, stdout=full)
        assert ran.returncode == 2
        assert (
            ran.stderr
            == b"error: standard output cannot be written (No space left on device); redirect it to another place\n"
        )


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_closed_streams_are_filled_so_that_no_file_takes_their_place(closed: tuple[int, ...], rollouts: Path) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    written = rollouts.parent / f"task_set{len(closed)}{closed[0]}.json"
    ran = run_installed(
        "tasks",
        "identity",
        "--out",
        written.name,
        cwd=rollouts.parent,
        preexec_fn=close,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert ran.returncode == 0
    assert written.read_text().startswith("{")
