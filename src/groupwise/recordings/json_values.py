"""JSON values of what Python and numpy programs hold: enums, tuples, numpy numbers and arrays."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

_JSON = frozenset({str, int, float, bool, type(None)})


def to_json_value(value: Any) -> Any:
    """The JSON value that a value stands for; what stands for none comes back as it is.

    >>> to_json_value((np.float32(0.5), np.int64(3), [True]))
    [0.5, 3, [True]]
    """
    kind = type(value)
    if kind in _JSON:
        return value
    if kind is list or kind is tuple:
        return list(value) if _JSON.issuperset(map(type, value)) else [to_json_value(inner) for inner in value]
    if isinstance(value, dict):
        return {str(name) if isinstance(name, Enum) else name: to_json_value(inner) for name, inner in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return to_json_value(value.tolist())
    if isinstance(value, Enum):
        return to_json_value(value.value)
    return value
