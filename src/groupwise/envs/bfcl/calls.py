"""Function calls in a response: read as Python or JSON, never evaluated."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_RESPONSE_CHARACTERS = 20_000
"""Characters of a response that is still read."""
MAX_CALLS = 100
"""Calls in one response."""
MAX_DEPTH = 20
"""Levels that the values of an argument may nest."""
MAX_BITS = 4096
"""Of a whole number that is an argument, or in one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of a function with arguments that are plain values.

    Worked example: `mv(source='a.txt', destination='temp')` has the name "mv" and two arguments by name.
    """

    name: str
    """Name of the function."""
    values: tuple[Any, ...] = ()
    """Arguments by place."""
    named: Mapping[str, Any] = field(default_factory=dict)
    """Arguments by name."""


def read_calls(text: str) -> tuple[Call, ...] | None:
    """The calls of a response, or None where it is something else.

    A response is one call, `cd(folder='temp')`, or a list of calls in the order in which they are carried out. A call
    may also be a JSON object with `name` and `arguments`. The empty list is no call.

    >>> [call.name for call in read_calls("[cd(folder='temp'), ls()]") or ()]
    ['cd', 'ls']
    >>> read_calls("I moved the file."), read_calls("[]")
    (None, ())
    """
    text = text.strip()
    if len(text) > MAX_RESPONSE_CHARACTERS:
        return None
    json_calls = _read_json(text)
    calls = _read_python(text) if json_calls is None else json_calls
    if calls is None or len(calls) > MAX_CALLS:
        return None
    return calls if all(_is_bounded((*call.values, *call.named.values())) for call in calls) else None


def _is_bounded(values: Iterable[Any]) -> bool:
    """Whether values are such as a service's function takes; level by level, so that depth costs no stack."""
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in values:
            kind = type(value)
            if kind is int and value.bit_length() > MAX_BITS:
                return False
            if kind in (list, tuple, set):
                inner += value
            elif kind is dict:
                inner += value.values()
        if not inner:
            return True
        values = inner
    return False


def _read_json(text: str) -> tuple[Call, ...] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    entries = content if isinstance(content, list) else [content]
    calls = []
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"name", "arguments"}:
            return None
        if not isinstance(entry["name"], str) or not isinstance(entry["arguments"], dict):
            return None
        calls.append(Call(name=entry["name"], named=entry["arguments"]))
    return tuple(calls)


def _read_python(text: str) -> tuple[Call, ...] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in a text are the policy's affair
            expression = ast.parse(text, mode="eval").body
        return tuple(
            _read_call(node) for node in (expression.elts if isinstance(expression, ast.List) else [expression])
        )
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _read_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("not a call of a named function")
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in named:
            raise ValueError("arguments that are unpacked, or given twice")
        named[keyword.arg] = ast.literal_eval(keyword.value)
    return Call(name=node.func.id, values=tuple(ast.literal_eval(value) for value in node.args), named=named)
