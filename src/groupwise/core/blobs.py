"""Values as small blobs: compressed JSON, which keeps every digit of a number."""

from __future__ import annotations

import json
import zlib
from typing import Any


def pack(value: object) -> bytes:
    """A JSON value as a blob."""
    return zlib.compress(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), 1)


def unpack(blob: bytes) -> Any:
    """The value of a blob; tuples come back as lists."""
    return json.loads(zlib.decompress(blob))
