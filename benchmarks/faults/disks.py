"""Runs on disks that fill up: each stops with a sentence, and goes on to the same end once the disk has grown."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.faults.commands import judge_ended, watch_command
from benchmarks.faults.endings import Ending
from benchmarks.faults.same_runs import find_lost_updates
from benchmarks.faults.section import Section
from benchmarks.faults.small_runs import R3
from tests.end_to_end.killing import finish, import_all

CLONE_NEWNS = 0x00020000
SMALLEST = 64 * 1024
PAGE = 4096
SPARE = 1.15
"""The largest disk is so many times what the whole run holds: a checkpoint is written beside the one it replaces."""
SECONDS = 90.0


class Disks(Section):
    """A case is a run on a disk of one size."""

    name = "disks"
    count = 60
    case_seconds = 240.0

    def explain_skip(self) -> str:
        """Mounting needs rights that not everybody has."""
        if os.geteuid() != 0:
            return "a disk of a chosen size is mounted as root only"
        place = self.folder / "trial"
        place.mkdir()
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True, text=True
        )
        if tried.returncode:
            return f"a disk of a chosen size cannot be mounted here ({tried.stderr.strip().splitlines()[-1]})"
        subprocess.run(["umount", place], check=True)
        return ""

    def prepare(self) -> dict[str, Any]:
        file = self.folder / "run.toml"
        file.write_text(R3, encoding="utf-8")
        import_all(file)
        finish(file, self.folder / "whole")
        self.largest = int(SPARE * sum(_on_disk(path) for path in (self.folder / "whole").rglob("*")))
        return {"smallest_kilobytes": SMALLEST // 1024, "largest_kilobytes": self.largest // 1024}

    def describe(self, case: int) -> str:
        return f"a disk of {self._size(case) // 1024} kB"

    def play(self, case: int) -> Ending:
        ending, place = Ending(case=case, what=self.describe(case)), self.folder / f"disk-{case}"
        place.mkdir()
        _hide_mounts()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self._size(case)}", "none", place], check=True)
        file, run = str(self.folder / "run.toml"), place / "run"
        ended = watch_command("train", file, "--out", str(run), "--plain", seconds=SECONDS)
        judge_ended(ending, ended, name="train on the small disk")
        ending.ended = (
            "fitted" if ended.status == 0 else "stopped with a sentence" if ended.status == 2 else "otherwise"
        )
        subprocess.run(["mount", "-o", f"remount,size={16 * self.largest}", place], check=True)
        resumed = watch_command("train", file, "--out", str(run), "--plain", "--resume", seconds=SECONDS)
        judge_ended(ending, resumed, name="train --resume on the grown disk", allowed=(0,))
        if resumed.status == 0:
            for lost in find_lost_updates(self.folder / "whole", run):
                ending.fail("lost_updates", lost)
        subprocess.run(["umount", place], check=True)
        return ending

    def _size(self, case: int) -> int:
        """Sizes at equal steps, with a little more or less, so that every campaign meets other instants."""
        share = (case + self.draws(case).random()) / self.count
        return int(SMALLEST + share * (self.largest - SMALLEST)) // PAGE * PAGE


def _hide_mounts() -> None:
    """Mount for this process alone: what it mounts goes with it, however it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mounts of its own for this process")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def _on_disk(path: Path) -> int:
    return -(-path.stat().st_size // PAGE) * PAGE
