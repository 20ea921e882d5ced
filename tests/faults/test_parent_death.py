"""A run that is killed leaves nothing behind, whatever its environments are doing at that moment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.faults.stubborn import MARK

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
ROOT = Path(__file__).parents[2]
PARENT = """
import os, sys, threading, time
from groupwise.rollout.worker_pool import Workers
from tests.faults.stubborn import Stubborn

def play():
    host = Workers(Stubborn(), num=1, timeout=600.0)
    host.open({0: Stubborn().task_set("train")[0]})
    if "copied" in sys.argv[2:] and os.fork() == 0:
        time.sleep(4)  # holds every pipe of the run open, as a copy does
        os._exit(0)
    host.act({0: sys.argv[1]})

if "threaded" in sys.argv[2:]:
    threading.Thread(target=play, daemon=True).start()
    time.sleep(600)
play()
"""


def list_processes(mark: str) -> list[str]:
    """The processes that carry a mark in their environment, the run itself and zombies aside."""
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
            if b"def play()" not in words and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                processes.append(words.replace(b"\0", b" ").decode()[:200])
        except (OSError, ValueError):
            continue
    return processes


def wait_for_none(mark: str, within: float = 2.0) -> list[str]:
    last = time.monotonic() + within
    while (processes := list_processes(mark)) and time.monotonic() < last:
        time.sleep(0.02)
    return processes


@pytest.mark.parametrize(
    ("action", "num_started", "way"),
    [
        ("spin", 1, ""),
        ("ignore, spin", 1, ""),
        ("ignore, group, spin", 2, ""),
        ("ignore, session, spin", 2, ""),
        ("daemon", 2, ""),
        ("group", 2, "threaded"),
        ("group, spin", 2, "copied"),
    ],
)
def test_nothing_is_left_two_seconds_after_the_run_was_killed(action: str, num_started: int, way: str) -> None:
    mark = uuid.uuid4().hex
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-c", PARENT, action, way]
    environment = os.environ | {"PYTHONPATH": path, MARK: mark}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stderr is not None
        assert parent.stderr.readline() == "acting\n"
        time.sleep(0.1)
        running = list_processes(mark)
        parent.kill()
    assert len(running) >= num_started, "the worker, and what it started"
    assert wait_for_none(mark) == []
