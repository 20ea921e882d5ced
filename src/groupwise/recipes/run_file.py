"""Run files: an algorithm as TOML, by recipe or part by part.

    [algorithm]
    recipe = "hgpo"                # a recipe by name, with its options
    depth = 4

or, without a recipe, the parts themselves, as `groupwise recipes --show NAME` prints them:

    [algorithm.advantage]
    kind = "relative"
    by = { kind = "by_task" }
    of = { kind = "episode_return" }
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError, nearest
from groupwise.recipes.catalogue import build

SECTIONS = ("algorithm",)


def load_algorithm(path: Path) -> Algorithm:
    """Read the algorithm of a run file; every error names the file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; give a recipe's name or a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    try:
        return decode_algorithm(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def decode_algorithm(content: Mapping[str, Any]) -> Algorithm:
    """Turn a run file's content into its algorithm."""
    for name in content:
        if name not in SECTIONS:
            raise ConfigError(f"unknown section {name!r}; {nearest(name, SECTIONS)}")
    section = content.get("algorithm")
    if not isinstance(section, Mapping):
        raise ConfigError("section [algorithm] is missing; give it a `recipe`, or an `advantage` with its `kind`")
    if "recipe" not in section:
        return Algorithm(**section)
    return build(str(section["recipe"]), **{key: value for key, value in section.items() if key != "recipe"})
