"""Names of a package that are imported at their first use, because their modules take seconds to load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_when_asked(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`; `places` has `module:name` for each lazy name."""

    def find_name(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, inner = places[name].partition(":")
        try:
            return getattr(import_module(module), inner)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == package.partition(".")[0]:
                raise
            raise ImportError(
                f"{package}.{name} needs {error.name}, which is not installed: pip install 'groupwise[train]'"
            ) from error

    return find_name
