"""Code run in a fresh interpreter, with modules that cannot be imported there."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.architecture.sources import ROOT

HELP = """
import sys
sys.argv = ["groupwise", *{arguments!r}]
from groupwise.cli.main import main
try:
    main()
except SystemExit as stopped:
    assert not stopped.code, stopped.code
"""


def fresh(code: str) -> str:
    """What a fresh interpreter prints."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def without(*modules: str) -> str:
    """Code that makes modules impossible to import."""
    return f"import sys\nfor name in {modules!r}: sys.modules[name] = None\n"
