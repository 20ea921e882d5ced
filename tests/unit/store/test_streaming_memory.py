"""A file much larger than what may be held at a time is read within that bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.audit_memory import write_file

FILE_BYTES = 300_000_000
MAX_GROWTH = 250_000_000

READ = """
import resource, sys
from pathlib import Path
from groupwise.store import RolloutsFile

def peak():
    # getrusage counts from the size of the process that started this one, pytest; the kernel's status does not.
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

before = peak()
rows = sum(len(chunk.table()) for chunk in RolloutsFile.open(sys.argv[1]).chunks())
print(rows, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [0, 60])
def test_300_megabytes_are_read_within_250(tmp_path: Path, tokens: int) -> None:
    path = tmp_path / "rollouts.jsonl"
    rows = write_file(path, FILE_BYTES, tokens=tokens)
    assert path.stat().st_size >= FILE_BYTES
    words = subprocess.run(
        [sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True, timeout=600
    ).stdout.split()
    assert int(words[0]) == rows
    assert int(words[1]) < MAX_GROWTH, words
