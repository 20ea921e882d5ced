"""Fields of an environment as the command line sets them: `--set FIELD=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupwise.core.errors import ConfigError
from groupwise.core.text.files import parse_value


def read_fields(settings: Sequence[str], *, prefix: str = "") -> dict[str, Any]:
    """Read `field=value` settings; a value is TOML, or else plain text.

    Args:
        settings: what `--set` was given.
        prefix: what a field may begin with, such as `env.`, as `groupwise train` takes it.
    """
    fields: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: found no '='; write FIELD=VALUE")
        fields[name.strip().removeprefix(prefix)] = parse_value(value.strip())
    return fields
