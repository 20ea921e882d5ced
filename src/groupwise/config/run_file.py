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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from groupwise import recipes
from groupwise.config.overrides import override_setting
from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError, find_near, nearest
from groupwise.core.run_paths import RunPaths
from groupwise.core.text.files import parse_toml, read_text_file
from groupwise.core.text.safe_text import quote_line
from groupwise.core.text.secrets import check_no_secret
from groupwise.recipes.catalogue import build
from groupwise.training.run_config import RunConfig

Decoded = TypeVar("Decoded")

MAX_MESSAGE = 2000
"""Characters of an error: it may list every valid name, but not repeat a value of a megabyte."""


def load_algorithm(path: Path) -> Algorithm:
    """Read the algorithm of a run file; every error names the file."""
    return _name_file(path, lambda: decode_algorithm(_read(path, "a recipe's name or a TOML file")))


def load_run(path: Path | str, *, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run file, with `a.b.c=value` overrides on top; every error names the file and the overrides.

    Args:
        path: a TOML file, or the folder of a run, whose own settings are read.
        overrides: settings by their path, such as `training.updates=80`.
    """
    path = RunPaths(Path(path)).config if Path(path).is_dir() else Path(path)
    content = _name_file(path, lambda: _read(path, "a run file (TOML) or the folder of a run"))
    try:
        return decode_run(content, overrides=overrides)
    except ConfigError as error:
        changed = "".join(f" --set {quote_line(override, limit=200)}" for override in overrides)
        raise ConfigError(_shorten(f"{path}{' with' if changed else ''}{changed}: {error}")) from None


def decode_algorithm(content: Mapping[str, Any]) -> Algorithm:
    """Turn a run file's content into its algorithm."""
    _check_sections(content)
    section = content.get("algorithm")
    if not isinstance(section, Mapping):
        raise ConfigError("section [algorithm] is missing; give it a `recipe`, or an `advantage` with its `kind`")
    if "recipe" not in section:
        _check_parts_only(section)
        return Algorithm(**section)
    over = {key: value for key, value in section.items() if key in Algorithm.model_fields}
    options = {key: value for key, value in section.items() if key != "recipe" and key not in over}
    _check_options(str(section["recipe"]), options)
    algorithm = build(str(section["recipe"]), **options)
    _check_present(str(section["recipe"]), algorithm, over)
    return Algorithm(**_lay_over(algorithm.config(), over)) if over else algorithm


def _check_options(recipe: str, options: Mapping[str, Any]) -> None:
    """A slip in a part's name is no option that the recipe lacks; whatever is nearer to an option, the recipe says."""
    known = recipes.summary(recipe).options if options else {}
    for key in (key for key in options if key not in known):
        valid = [*Algorithm.model_fields, *known]
        near = find_near(key, valid)
        if near and near[0] not in known:
            raise ConfigError(
                f"algorithm.{key} is no part and no option of the recipe {recipe!r}; {nearest(key, valid)}"
            )


def _check_parts_only(section: Mapping[str, Any]) -> None:
    """An option of a recipe says nothing to parts."""
    options = {option for name in recipes.names() for option in recipes.summary(name).options}
    for key in section:
        if key not in Algorithm.model_fields and key in options:
            raise ConfigError(
                f"algorithm.{key} is an option of a recipe, and here the algorithm is spelled out part by part; set "
                "algorithm.recipe too, or change the part itself"
            )


def _check_present(recipe: str, algorithm: Algorithm, over: Mapping[str, Any]) -> None:
    """Settings of a part that the recipe, as it was asked for, does not have."""
    for key in ("replay", "guidance", "pairing"):
        settings = over.get(key)
        if isinstance(settings, Mapping) and "kind" not in settings and getattr(algorithm, key) is None:
            raise ConfigError(
                f"algorithm.{key}: the recipe {recipe!r}, with the options given, has no {key} whose settings could "
                f"change; leave the settings out, or give them a `kind`"
            )


def _lay_over(parts: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Put what the run file says on top of a recipe's parts: a table that keeps its kind is filled up."""
    merged = dict(parts)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and _keeps_kind(before, value):
            merged[key] = _lay_over(before, value)
        else:
            merged[key] = value
    return merged


def _keeps_kind(before: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    return "kind" not in changes or changes["kind"] == before.get("kind")


def decode_run(content: Mapping[str, Any], *, overrides: Sequence[str] = ()) -> RunConfig:
    """Turn a run file's content into a run."""
    merged: dict[str, Any] = copy.deepcopy(dict(content))
    if any(override.partition("=")[0] == "algorithm.recipe" for override in overrides):
        _make_room_for_recipe(merged)
    for override in overrides:
        override_setting(merged, override)
    check_no_secret(merged)
    algorithm = decode_algorithm(merged)
    return RunConfig(**{**merged, "algorithm": algorithm})


def _make_room_for_recipe(content: dict[str, Any]) -> None:
    """Another recipe takes the place of an algorithm that is spelled out, as a run's own config has it.

    Its parts would otherwise outweigh every one of the recipe's, and the run would be what it was.
    """
    section = content.get("algorithm")
    if isinstance(section, Mapping) and "recipe" not in section:
        del content["algorithm"]


def _check_sections(content: Mapping[str, Any]) -> None:
    for name in content:
        if name not in RunConfig.model_fields:
            raise ConfigError(f"unknown section {name!r}; {nearest(name, RunConfig.model_fields)}")


def _read(path: Path, wanted: str) -> dict[str, Any]:
    try:
        text = read_text_file(path)
    except FileNotFoundError:
        near = find_near(path.stem, [file.stem for file in path.parent.glob("*.toml")])
        meant = f"did you mean {path.with_name(near[0] + '.toml')}? Give" if near else "give"
        raise ConfigError(f"there is no such file; {meant} {wanted}") from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); give {wanted}") from None
    except ValueError as error:
        raise ConfigError(f"cannot be read ({error}); give {wanted}") from None
    try:
        return parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"not valid TOML: {error}") from None


def _name_file(path: Path, read: Callable[[], Decoded]) -> Decoded:
    try:
        return read()
    except ConfigError as error:
        raise ConfigError(_shorten(f"{path}: {error}")) from None


def _shorten(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
