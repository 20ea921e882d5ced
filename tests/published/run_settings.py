"""The settings of a run file by their paths, those of its method by the method's own names."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from groupwise.methods import METHODS
from groupwise.training.config.run_file import load_run, read_run_file


def read_settings(file: Path, paths: Iterable[str]) -> dict[str, Any]:
    """The values of settings in a run file; a path that is no setting is left out."""
    written = read_run_file(file).content["algorithm"]
    options = inspect.signature(METHODS[written["method"]]).parameters
    settings: dict[str, Any] = load_run(file).config()
    settings["algorithm"] |= {name: written.get(name, option.default) for name, option in options.items()}
    settings["algorithm"]["method"] = written["method"]
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = settings
        for name in path.split("."):
            inside = {str(n): entry for n, entry in enumerate(value)} if isinstance(value, list) else value
            if not isinstance(inside, dict) or name not in inside:
                break
            value = inside[name]
        else:
            found[path] = value
    return found
