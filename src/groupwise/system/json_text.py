"""Strict reading of external JSON: a repeated key is an error, and lone surrogates become text.

Python's reader silently takes the last of two equal keys, accepts lone surrogates, which cannot be written as UTF-8,
and reads NaN. This module handles the first two fast enough for large files; `describe_strangeness` finds NaN and
infinities where they are not allowed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import Any

from groupwise.system.text import escape_surrogates, quote_line

MAX_NESTING = 100
"""Largest depth of lists and objects: no state is deeper, and every recursion over a value stays bounded."""

LARGEST_FLOAT = 1.7976931348623157e308

_STRICT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False)
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_STRICT_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)
_LEAVES = frozenset({str, int, bool, type(None)})
_KEYS = _LEAVES | {float}
"""Types of an object's keys: JSON writes numbers as text."""
_WRITTEN_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str) -> Any:
    r"""The value of a JSON text; a ValueError if it is invalid.

    A lone surrogate, which JSON can write and UTF-8 cannot, becomes the text of its escape.

    >>> parse_json('{"a": [1, "half \\ud83d"]}')
    {'a': [1, 'half \\ud83d']}
    """
    try:
        value = _DECODER.decode(text)
        if "\\" in text and _WRITTEN_SURROGATE.search(text):
            return _without_surrogates(value)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deep") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        if "digits" in str(error):  # Python's own message is about its settings, not about the file
            raise ValueError("a number in it has thousands of digits") from None
        raise
    return value


def to_canonical_json(value: object, *, takes_nan: bool = True) -> str:
    """The canonical JSON text of a value: sorted keys, no white space. NaN and infinities are a ValueError if asked.

    >>> to_canonical_json({"b": 1, "a": [2, 3]})
    '{"a":[2,3],"b":1}'
    """
    return (_CANONICAL if takes_nan else _STRICT_CANONICAL).encode(value)


def to_json(value: object, *, ensure_ascii: bool = True) -> str:
    """The indented text of a JSON file, with a line break at its end."""
    return json.dumps(value, indent=2, ensure_ascii=ensure_ascii) + "\n"


def digest_value(value: object) -> str:
    """The sha256 of a JSON value with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def is_plain(value: Any) -> bool:
    """Whether a list or an object can be written as JSON and is not nested too deep."""
    try:
        return is_shallow(_STRICT.encode(value), value)  # many times as fast as a recursion over it
    except (TypeError, ValueError, RecursionError):
        return False


def is_shallow(text: str, value: Any) -> bool:
    """Whether a value with this JSON text is not nested too deep; the number of brackets often tells."""
    return text.count("[") + text.count("{") <= MAX_NESTING or describe_strangeness(value) is None


def describe_strangeness(value: Any) -> str | None:
    """What in a value is not JSON, or None: NaN, an infinity, another type, endless nesting.

    >>> describe_strangeness({"a": [1.5, float("nan")]}), describe_strangeness([1, "x", None, {"b": True}])
    ('holds NaN', None)
    """
    waiting = [(value, 1)]
    while waiting:
        holder, depth = waiting.pop()
        if depth > MAX_NESTING:
            return f"is nested more than {MAX_NESTING} deep"
        entries = holder.values() if type(holder) is dict else holder
        if type(holder) is dict and not _KEYS.issuperset(map(type, holder)):
            return "has a key that is not text"
        kinds = set(map(type, entries))
        if kinds <= _LEAVES:
            continue
        for entry in entries:
            kind = type(entry)
            if kind is list or kind is dict:
                waiting.append((entry, depth + 1))
            elif kind is float:
                if not -LARGEST_FLOAT <= entry <= LARGEST_FLOAT:
                    return f"holds {'NaN' if entry != entry else 'an infinity'}"
            elif kind not in _LEAVES:
                return f"holds a {kind.__name__}"
    return None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_key = dict(pairs)
    if len(by_key) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {quote_line(repr(twice), limit=60)} appears twice in one object")
    return by_key


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return escape_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(inner) for inner in value]
    if isinstance(value, dict):
        return _object([(escape_surrogates(key), _without_surrogates(inner)) for key, inner in value.items()])
    return value
