"""The settings of a run file, by their paths."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from groupwise.training.config.schema import make_run_schema

schema = cache(make_run_schema)


def find_fields(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of a setting, of each kind that it may have."""
    if "$ref" in node:
        yield from find_fields(schema()["definitions"][node["$ref"].rpartition("/")[2]])
    if "properties" in node:
        yield node["properties"]
    for key in ("allOf", "anyOf", "oneOf"):
        for inner in node.get(key, ()):
            yield from find_fields(inner)


def is_setting(name: str) -> bool:
    nodes = [schema()]
    for key in name.split("."):
        nodes = [fields[key] for node in nodes for fields in find_fields(node) if key in fields]
    return bool(nodes)
