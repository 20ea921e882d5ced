"""Algorithms as the command line names them: a recipe, a recipe with options, or a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError
from groupwise.recipes import build


def algorithm_named(text: str) -> Algorithm:
    """Build what `hgpo`, `hgpo:depth=4,scale=none` or `my_run.toml` names."""
    from groupwise.recipes.run_file import (
        load_algorithm,
        parse_value,
    )  # a run's whole schema; not every command needs it

    if text.endswith(".toml"):
        return load_algorithm(Path(text))
    name, _, options = text.partition(":")
    given: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, equals, value = option.partition("=")
        if not equals:
            raise ConfigError(f"{name}: option {option!r} has no value; write {key}=VALUE")
        given[key] = parse_value(value)
    return build(name, **given)
