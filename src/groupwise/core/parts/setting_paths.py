"""Settings by their paths: a run file's content, flat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting by its path; tables in lists are numbered, lists of plain values are values.

    >>> flatten_settings({"env": {"kind": "lake"}, "terms": [{"weight": 1.0}], "betas": [0.9, 0.99]})
    {'env.kind': 'lake', 'terms[0].weight': 1.0, 'betas': [0.9, 0.99]}
    """
    return dict(_walk_settings(settings, ""))


def _walk_settings(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk_settings(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _walk_settings(inner, f"{path}[{number}]")
    else:
        yield path, value
