"""Values as small blobs: compressed JSON, which keeps every digit of a number."""

from __future__ import annotations

import json
import zlib
from typing import Any

from pydantic_core import to_json


def pack(value: object) -> bytes:
    """A JSON value as a blob."""
    return zlib.compress(to_json(value, inf_nan_mode="constants"), 1)  # four times as fast as json.dumps


def unpack(blob: bytes) -> Any:
    """The value of a blob; tuples come back as lists."""
    return json.loads(zlib.decompress(blob))
