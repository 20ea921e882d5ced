"""In which settings a run's algorithm differs from the defaults of its method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise import methods
from groupwise.parts.part import Part, kind_of
from groupwise.report.number_format import format_compact
from groupwise.system.errors import ConfigError
from groupwise.training.config.checks import list_notices
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.schema import read_field_sentences
from groupwise.training.run_reader import RunFolder


@dataclass(frozen=True, kw_only=True)
class OwnSetting:
    """A setting that differs from the method's default."""

    path: str
    """Its path in a run file, such as `algorithm.loss.old`."""
    value: str
    default: str
    meaning: str
    """What the setting is, in one sentence; empty for an option of the method."""


def list_own_settings(folder: RunFolder) -> list[OwnSetting] | None:
    """The settings that differ; None if the run has no method to compare with, or its parts cannot be decoded here."""
    written, algorithm = folder.settings.get("made_by"), folder.find_algorithm()
    if not isinstance(written, Mapping) or algorithm is None:
        return None
    try:
        name = str(written.get("method"))
        defaults = methods.summary(name).options
        options = {key: value for key, value in written.items() if key in defaults}
        as_published = methods.build(name, **options)
    except ConfigError:  # a method of another version
        return None
    own = [
        OwnSetting(
            path=f"algorithm.{key}", value=describe_value(value), default=describe_value(defaults[key]), meaning=""
        )
        for key, value in options.items()
        if value != defaults[key]
    ]
    return own + list(find_different_fields(as_published, algorithm, "algorithm"))


def find_different_fields(default: Part, actual: Part, path: str) -> Iterator[OwnSetting]:
    """The fields in which two parts of one class differ; a part of another class is one difference."""
    for name in type(actual).model_fields:
        before, after = getattr(default, name), getattr(actual, name)
        if before == after:
            continue
        pairs = _pair_parts(before, after)
        if pairs is not None:
            for place, (one, other) in pairs.items():
                yield from find_different_fields(one, other, f"{path}.{name}{place}")
        else:
            yield OwnSetting(
                path=f"{path}.{name}",
                value=describe_value(after),
                default=describe_value(before),
                meaning=read_field_sentences(type(actual)).get(name, ""),
            )


def _pair_parts(before: object, after: object) -> dict[str, tuple[Part, Part]] | None:
    """Parts of equal classes to compare field by field, with their place in a list; None if there are none."""
    if isinstance(before, Part) and type(before) is type(after):
        return {"": (before, after)}
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        pairs = list(zip(before, after, strict=True))
        if all(isinstance(one, Part) and type(one) is type(other) for one, other in pairs):
            return {f"[{place}]": pair for place, pair in enumerate(pairs)}
    return None


def describe_value(value: Any) -> str:
    """A setting in a few words.

    >>> from groupwise.losses import Kl
    >>> describe_value((Kl(weight=0.02),)), describe_value(()), describe_value(True)
    ('kl (weight 0.02)', 'none', 'true')
    """
    if value is None or value in ((), "", {}, []):
        return "none"
    if isinstance(value, Part):
        own = [
            f"{name.replace('_', ' ')} {describe_value(getattr(value, name))}"
            for name, field in type(value).model_fields.items()
            if getattr(value, name) != field.default
        ]
        kind = kind_of(type(value)).rpartition(":")[2]
        return f"{kind} ({', '.join(own)})" if own else kind
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {describe_value(inner)}" for key, inner in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(describe_value, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_compact(value) if isinstance(value, int | float) else str(value)


def list_run_notices(folder: RunFolder) -> list[str]:
    """The notices that `groupwise train` printed about the settings, such as a difference to the publication."""
    try:
        notices = list_notices(RunConfig(**folder.settings))
    except ConfigError:  # a part that is not installed here, or not trusted
        return []
    return [notice if "." in notice.split()[0] else notice[0].upper() + notice[1:] for notice in notices]
