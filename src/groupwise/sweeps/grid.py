"""The arms of a sweep: every combination of the values that settings are given on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from groupwise.config.overrides import parse_setting
from groupwise.core.errors import ConfigError
from groupwise.core.text.files import parse_value
from groupwise.core.text.safe_text import quote_line

RECIPE = "algorithm.recipe"
MAX_NAME = 80
"""Characters of an arm's name, which its folder has too."""
BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}

Choice = dict[str, str]
"""A value, as text, for each setting that was given."""


def list_choices(settings: Sequence[str]) -> list[Choice]:
    """Every combination of `a.b=1,2` settings, in the order in which they were given.

    >>> list_choices(["depth=1,2", "scale=none"])
    [{'depth': '1', 'scale': 'none'}, {'depth': '2', 'scale': 'none'}]
    """
    values: dict[str, list[str]] = {}
    for setting in settings:
        key, _ = parse_setting(setting, option="--set ")
        if key in values:
            raise ConfigError(f"--set {key} is given twice; give all of its values at once: --set {key}=1,2")
        if key == "seed":
            raise ConfigError("--set seed: a sweep's seeds are counted from the run file's; say how many with --seeds")
        values[key] = _split_values(key, setting.partition("=")[2])
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def name_arms(choices: Sequence[Choice], *, otherwise: str) -> list[str]:
    """What each arm is called, and its folder: by the settings in which the arms differ.

    >>> name_arms([{"algorithm.recipe": "grpo", "a.b": "1"}, {"algorithm.recipe": "hgpo", "a.b": "1"}], otherwise="x")
    ['grpo', 'hgpo']

    Args:
        choices: the values of each arm.
        otherwise: the name of a single arm.
    """
    differing = [key for key in choices[0] if len({choice[key] for choice in choices}) > 1]
    if not differing:
        return [_make_folder_name(otherwise)]
    short = {key: _shorten_key(key, differing) for key in differing}
    names = [
        _make_folder_name(",".join(f"{short[key]}{_describe_value(choice[key])}" for key in differing))
        for choice in choices
    ]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two arms of the sweep would both be called {name!r}; give the settings values that tell them apart"
            )
    return names


def _split_values(key: str, text: str) -> list[str]:
    """Values between commas; those within quotes and brackets belong to a value.

    >>> _split_values("plan", '{ kind = "flat", attempts = 4 },flat')
    ['{ kind = "flat", attempts = 4 }', 'flat']
    """
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += 0 if quote else BRACKETS.get(character, 0)
        if character == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += character
    values = [value.strip() for value in values]
    if "" in values:
        raise ConfigError(f"--set {quote_line(f'{key}={text}', limit=200)} lacks a value; write --set {key}=1,2")
    if len(set(values)) < len(values):
        raise ConfigError(f"--set {quote_line(f'{key}={text}', limit=200)} has a value twice; name each once")
    return values


def _shorten_key(key: str, keys: Sequence[str]) -> str:
    """The last part of a setting's path where that tells it from the others; nothing for the recipe."""
    if key == RECIPE:
        return ""
    last = key.rpartition(".")[2]
    is_alone = sum(other.rpartition(".")[2] == last for other in keys) == 1
    return f"{last if is_alone else key}="


def _describe_value(text: str) -> str:
    value: Any = parse_value(text)
    if isinstance(value, Mapping):
        rest = {key: inner for key, inner in value.items() if key != "kind"}
        return f"{value.get('kind', '')}{json.dumps(rest) if rest else ''}"
    return str(value)


def _make_folder_name(text: str) -> str:
    """A name that any file system and any shell takes as it is."""
    plain = re.sub(r"[^A-Za-z0-9._+=,-]+", "-", text).strip("-.,")
    return plain[:MAX_NAME] or "run"
