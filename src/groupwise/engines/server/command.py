"""The command that starts our own server."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from groupwise.engines.server_processes import Command


def groupwise_command(model: str, *, port: int, options: Mapping[str, object] = {}) -> Command:
    """Arguments and environment of a server for a model's folder, an adapter's, or a name of the hub.

    Args:
        model: the folder or name.
        port: where it listens.
        options: further options of the command by name, such as `{"lora-rank": 8, "compile-parts": True}`.
    """
    arguments = [sys.executable, "-P", "-m", "groupwise.engines.server", model, "--port", str(port)]
    for name, value in options.items():
        if value is not False:
            arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    # The server runs this very code, also where it is not the installed one.
    place = str(Path(__file__).parents[3])
    paths = [place, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return arguments, {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
