"""The `groupwise` command in a process of its own, as pip installs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1] / "src"
# As pip writes it: the folder of the script, and not the current one, is first on the path.
SCRIPT = "import sys\nfrom groupwise.cli.main import main\nsys.exit(main())\n"


def run_installed(*arguments: str, cwd: Path, env: dict[str, str] | None = None, **options: Any) -> Any:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "groupwise"
        script.write_text(SCRIPT)
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.run(
            [sys.executable, str(script), *arguments],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": str(SOURCES)} | (env or {}),
            **streams,
        )
