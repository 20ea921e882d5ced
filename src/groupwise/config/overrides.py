"""Settings that are given as text, `KEY=VALUE`: one by one, or put on top of what a run file says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from groupwise.core.errors import ConfigError, nearest
from groupwise.core.text.files import MAX_KEY_PARTS, parse_value
from groupwise.core.text.safe_text import quote_line


def parse_setting(text: str, *, option: str = "") -> tuple[str, Any]:
    """Read `KEY=VALUE`; the value is TOML, or else plain text.

    >>> parse_setting("depth=4"), parse_setting("scale=none")
    (('depth', 4), ('scale', 'none'))

    Args:
        text: the setting.
        option: how a message writes what comes before a setting, such as `--set `.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{quote_line(repr(text))} has no value; write {option}{quote_line(key, limit=200)}=VALUE")
    return key.strip(), parse_value(value.strip())


def parse_settings(texts: Iterable[str], *, option: str = "", prefix: str = "") -> dict[str, Any]:
    """Read settings by key, less a prefix such as `env.` that a key may begin with; of one key the last counts."""
    settings = [parse_setting(text, option=option) for text in texts]
    return {key.removeprefix(prefix): value for key, value in settings}


def override_setting(content: dict[str, Any], text: str) -> None:
    """Put a setting such as `training.updates=80` into the content of a run file, in place of what stood there."""
    path, value = parse_setting(text, option="--set ")
    *sections, key = path.split(".")
    if len(sections) > MAX_KEY_PARTS:
        raise ConfigError(f"the key of {quote_line(repr(text), limit=60)} has too many parts; no setting is so deep")
    for depth, section in enumerate(sections, start=1):
        content = content.setdefault(section, {})
        if isinstance(content, list):
            name = quote_line(".".join(sections[:depth]), limit=200)
            raise ConfigError(f"{quote_line(repr(section))} is a list; give it whole: --set '{name}=[...]'")
        if not isinstance(content, dict):
            raise ConfigError(f"{quote_line(repr(section))} is a value, not a section")
    content[key] = value


def unset_setting(content: dict[str, Any], path: str) -> None:
    """Take a setting such as `training.learner` out of the content of a run file, so that its default counts."""
    *sections, key = path.strip().split(".")
    for section in sections:
        content = _find_section(content, section, path)
    if key not in content:
        raise _report_unset(path, key, content)
    del content[key]


def _find_section(content: dict[str, Any], name: str, path: str) -> dict[str, Any]:
    if name not in content:
        raise _report_unset(path, name, content)
    section = content[name]
    if not isinstance(section, dict):
        raise ConfigError(f"--unset {quote_line(path, limit=200)}: {quote_line(repr(name))} is no section")
    return section


def _report_unset(path: str, key: str, content: dict[str, Any]) -> ConfigError:
    return ConfigError(
        f"--unset {quote_line(path, limit=200)}: the file does not set {quote_line(repr(key), limit=200)}; "
        f"{nearest(key, content)}"
    )
