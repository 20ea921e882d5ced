"""A value in a few words, for messages that say what came where something else is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def describe_value(value: object) -> str:
    """Say what kind of thing a value is, and how large.

    >>> describe_value([1, 2]), describe_value(0.5), describe_value(np.zeros((2, 3)))
    ('a list of 2', 'the float 0.5', 'an array of 2 x 3 float64')
    """
    if value is None:
        return "nothing"
    if isinstance(value, np.ndarray):
        words = f"an array of {' x '.join(map(str, value.shape)) or 'no axis,'} {value.dtype}"
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            words += f" with {value[~np.isfinite(value)].flat[0]} in it"
        return words
    if isinstance(value, bool | int | float):
        return f"the {type(value).__name__} {value}"
    size = f" of {len(value)}" if isinstance(value, Sequence | Mapping) and not isinstance(value, str) else ""
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"a {type(value).__name__}{size}{shape}"
