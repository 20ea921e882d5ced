"""Algorithms and parts as the command line names them: by name, by name with options, or as a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.config.overrides import parse_settings
from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part, find_part_class
from groupwise.recipes import build


def build_algorithm(text: str) -> Algorithm:
    """Build what `hgpo`, `hgpo:depth=4,scale=none` or `my_run.toml` names."""
    from groupwise.config.run_file import load_algorithm  # a run's whole schema; not every command needs it

    if text.endswith(".toml"):
        return load_algorithm(Path(text))
    name, settings = _split_options(text)
    return build(name, **settings)


def build_part(slot: str, text: str) -> Part:
    """Make the part of a slot that `window` or `window:steps=4` names."""
    name, settings = _split_options(text)
    return find_part_class(slot, name)(**settings)


def _split_options(text: str) -> tuple[str, dict[str, Any]]:
    name, _, options = text.partition(":")
    try:
        return name, parse_settings(filter(None, options.split(",")))
    except ConfigError as error:
        raise ConfigError(f"{name}: option {error}") from None
