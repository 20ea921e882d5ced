"""Values as small blobs: compressed JSON, which keeps every digit of a number."""

from __future__ import annotations

import json
import zlib
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

_LEAVES = frozenset({str, int, float, bool, type(None)})


def pack_blob(value: object) -> bytes:
    """A JSON value as a blob; TypeError for what is none, such as a set, which has no order to come back in."""
    _check(value)
    try:
        written = to_json(value, inf_nan_mode="constants")  # several times as fast as json.dumps
    except PydanticSerializationError as error:  # half of a character, nesting without end
        raise TypeError(f"no form in JSON: {error}") from None
    return zlib.compress(written, 1)


def unpack_blob(blob: bytes) -> Any:
    """The value of a blob; tuples come back as lists. ValueError for what no value was packed into."""
    try:
        return json.loads(zlib.decompress(blob))
    except zlib.error as error:
        raise ValueError(f"a blob cannot be unpacked: {error}") from None


def _check(value: object) -> None:
    if isinstance(value, list | tuple):
        if not _LEAVES.issuperset(map(type, value)):  # long lists are of numbers alone
            for entry in value:
                _check(entry)
    elif isinstance(value, dict):
        _check([*value.values()])
        strange = [key for key in value if not isinstance(key, str)]
        if strange:
            raise TypeError(f"JSON names are text, but an object has {strange[0]!r}")
    elif not isinstance(value, str | int | float | None):
        raise TypeError(f"a {type(value).__module__}.{type(value).__name__} has no form in JSON")
