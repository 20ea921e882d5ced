"""Weights in memory: where there is room, and what killed processes left there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.engines import client as memory_folder

KILLED = """
import os, signal, sys
from pathlib import Path
from groupwise.engines import client as memory_folder
memory_folder.MEMORY_FOLDER = Path(sys.argv[1])
folder = memory_folder.open_weights_folder(1)
(Path(folder.name) / "weights").write_text("large")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_weights_lie_in_memory_where_there_is_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere = tmp_path / "not there"
    for place, num_bytes, is_in_memory in ((tmp_path, 1000, True), (tmp_path, 2**60, False), (elsewhere, 1000, False)):
        monkeypatch.setattr(memory_folder, "MEMORY_FOLDER", place)
        with memory_folder.open_weights_folder(num_bytes) as folder:
            assert Path(folder).is_dir()
            assert (Path(folder).parent == place) == is_in_memory


def test_what_a_killed_process_left_is_removed_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory_folder, "MEMORY_FOLDER", tmp_path)
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60).returncode == -9
    [left] = tmp_path.iterdir()
    assert (left / "weights").is_file()
    # Another container may have a living process of that number; and names that are none of ours.
    kept = [left.name.replace("weights-", "weights-1", 1), "groupwise-weights-x", "groupwise-other"]
    kept.append(f"groupwise-weights-{left.name.split('-')[2]}-{10**30}-abc")
    for name in kept:
        (tmp_path / name).mkdir()
    with memory_folder.open_weights_folder(1) as own:
        memory_folder.open_weights_folder(1).cleanup()  # another run of ours, while this one hands over
        assert {path.name for path in tmp_path.iterdir()} == {*kept, Path(own).name}
