"""Run files: a run as TOML, with its algorithm by recipe or part by part.

    seed = 0

    [algorithm]
    recipe = "hgpo"                # a recipe by name, with its options
    depth = 4

    [env]
    kind = "household"

    [model]
    kind = "tiny"

Beside its options, a recipe's parts can be changed one by one:

    [algorithm.loss]
    old = "engine"                 # the rest of the loss stays the recipe's

An algorithm can also be spelled out, as `groupwise recipes --show NAME` prints it:

    [algorithm.advantage]
    kind = "relative"
    by = { kind = "by_task" }
    of = { kind = "episode_return" }

Order of truth: a recipe's defaults, then the run file, then `--set a.b.c=value`.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError, nearest
from groupwise.recipes.catalogue import build
from groupwise.training.run_config import RunConfig

Decoded = TypeVar("Decoded")


def load_algorithm(path: Path) -> Algorithm:
    """Read the algorithm of a run file; every error names the file."""
    return _named(path, lambda: decode_algorithm(_read(path)))


def load_run(path: Path, *, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run file, with `a.b.c=value` overrides on top; every error names the file."""
    return _named(path, lambda: decode_run(_read(path), overrides=overrides))


def decode_algorithm(content: Mapping[str, Any]) -> Algorithm:
    """Turn a run file's content into its algorithm."""
    _check_sections(content)
    section = content.get("algorithm")
    if not isinstance(section, Mapping):
        raise ConfigError("section [algorithm] is missing; give it a `recipe`, or an `advantage` with its `kind`")
    if "recipe" not in section:
        return Algorithm(**section)
    over = {key: value for key, value in section.items() if key in Algorithm.model_fields}
    options = {key: value for key, value in section.items() if key != "recipe" and key not in over}
    made = build(str(section["recipe"]), **options)
    return Algorithm(**_over(made.config(), over)) if over else made


def _over(made: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's parts with what the run file says about them on top: a table that keeps its kind is filled up."""
    found = dict(made)
    for key, value in given.items():
        before = found.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and _keeps_kind(before, value):
            found[key] = _over(before, value)
        else:
            found[key] = value
    return found


def _keeps_kind(before: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    return "kind" not in given or given["kind"] == before.get("kind")


def decode_run(content: Mapping[str, Any], *, overrides: Sequence[str] = ()) -> RunConfig:
    """Turn a run file's content into a run."""
    merged: dict[str, Any] = copy.deepcopy(dict(content))
    for override in overrides:
        _override(merged, override)
    algorithm = decode_algorithm(merged)
    return RunConfig(**{**merged, "algorithm": algorithm})


def _check_sections(content: Mapping[str, Any]) -> None:
    for name in content:
        if name not in RunConfig.model_fields:
            raise ConfigError(f"unknown section {name!r}; {nearest(name, RunConfig.model_fields)}")


def _override(content: dict[str, Any], text: str) -> None:
    path, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r} has no value; write --set {path}=VALUE")
    *sections, key = path.split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise ConfigError(f"--set {path}: {section!r} is a value, not a section")
    content[key] = parse_value(value)


def parse_value(text: str) -> Any:
    """A value as TOML writes it; bare words are text, as in `scale=none`."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("there is no such file; give a recipe's name or a TOML file") from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); give a recipe's name or a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not valid TOML: {error}") from None


def _named(path: Path, read: Callable[[], Decoded]) -> Decoded:
    try:
        return read()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
