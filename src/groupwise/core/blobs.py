"""Values as small blobs: compressed JSON, which keeps every digit of a number."""

from __future__ import annotations

import json
import zlib
from typing import Any

from pydantic_core import to_json

_LEAVES = frozenset({str, int, float, bool, type(None)})


def pack(value: object) -> bytes:
    """A JSON value as a blob; TypeError for what is none, such as a set, which has no order to come back in."""
    _check(value)
    return zlib.compress(to_json(value, inf_nan_mode="constants"), 1)  # several times as fast as json.dumps


def unpack(blob: bytes) -> Any:
    """The value of a blob; tuples come back as lists."""
    return json.loads(zlib.decompress(blob))


def _check(value: object) -> None:
    if isinstance(value, list | tuple):
        if not _LEAVES.issuperset(map(type, value)):  # long lists are of numbers alone
            for each in value:
                _check(each)
    elif isinstance(value, dict):
        _check([*value.values()])
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"JSON names are text, but an object has one of {sorted(map(repr, value))[0]}")
    elif not isinstance(value, str | int | float | None):
        raise TypeError(f"a {type(value).__name__} has no form in JSON")
