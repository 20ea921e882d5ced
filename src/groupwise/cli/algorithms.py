"""Algorithms as the command line names them: a recipe, a recipe with options, or a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError
from groupwise.recipes import build
from groupwise.recipes.run_file import load_algorithm


def algorithm_named(text: str) -> Algorithm:
    """Build what `hgpo`, `hgpo:depth=4,scale=none` or `my_run.toml` names."""
    if text.endswith(".toml"):
        return load_algorithm(Path(text))
    name, _, options = text.partition(":")
    return build(name, **dict(_option(name, option) for option in options.split(",") if option))


def _option(recipe: str, text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{recipe}: option {text!r} has no value; write {key}=VALUE")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value  # bare words, as in scale=none
