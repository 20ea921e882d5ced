"""Ways to spoil a file: bytes that are lost or flipped, JSON values that are not what they should be, TOML that is odd.

Each function takes a good file and a source of randomness, and returns a spoilt one; the same `Random` gives the same
result. What comes back may still be good: a reader must accept it or refuse it in one sentence, nothing else.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

MAX_DEPTH = 200_000
"""Brackets within one another: far more than a parser that calls itself can follow."""

_DIGITS = "9" * 5000
_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-0", "1e308", "1" + "0" * 400, _DIGITS, "-" + _DIGITS, "0.1e-400")
_STRANGE_TEXTS = (
    r"\ud83d",
    r"\udc00\ud800",
    r"\u0000",
    r"\u001b]52;c;aGk=\u0007",
    r"\u202e",
    "\ufeff",
    "x" * 100_000,
    _DIGITS,
    "²",
    "١٢٣",
    "a_" + _DIGITS + "_" + _DIGITS,
    "True",
    "nan",
    "1e999",
    "-1",
    "1_0",
    "",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    5,
    2**31,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    0.5,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x",
    "1",
    [],
    ["x"],
    [None],
    [[1], [2, 3]],
    [float("nan")],
    [10**400],
    {},
    {"a": float("nan")},
    {"": None},
    {"cls": 1},
    {"task": {"task": []}},
)

Spoil = Callable[[bytes, Random], bytes]


def mutate_bytes(data: bytes, rng: Random) -> bytes:
    """Any file with bytes lost, flipped, repeated, put in or cut off, or squeezed into a (damaged) gzip stream."""
    spoil: Spoil = rng.choice(
        (_cut_off, _flip_bit, _put_in_bytes, _drop_slice, _repeat_slice, _zero_slice, _swap_slices, _compress, _prefix)
    )
    return spoil(data, rng)


def mutate_json_lines(text: str, rng: Random) -> str:
    """JSON Lines with a value, a key, a line or the text of a line changed, on one to three lines."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        lines = lines or [""]
        number = rng.randrange(len(lines))
        if rng.random() < 0.6:
            lines[number] = _change_value(lines[number], rng)
        elif rng.random() < 0.7:
            lines[number] = _change_text(lines[number], rng)
        else:
            lines = _change_order(lines, number, rng)
    return rng.choice(("\n", "\n", "\n", "\r\n", "\n\n")).join(lines)


def mutate_toml(text: str, rng: Random) -> str:
    """A run file with values, keys, sections or characters changed, in one to three places."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        lines = lines or [""]
        number = rng.randrange(len(lines))
        name, equals, _ = lines[number].partition("=")
        kind = rng.random()
        if equals and kind < 0.6:
            lines[number] = f"{name}= {_toml_value(rng)}"
        elif kind < 0.7:
            lines.insert(number, lines[rng.randrange(len(lines))])
        elif kind < 0.8:
            lines[number] = _change_text(lines[number], rng)
        elif kind < 0.9:
            lines.insert(
                number, rng.choice(("[", "[algorithm", "[[env]]", "[env.kind]", "a.b.c.d = 1", '"" = 1', "\x00"))
            )
        else:
            del lines[number]
    return "\n".join(lines)


def deep_list(depth: int = MAX_DEPTH) -> str:
    """A list in a list in a list, as JSON and TOML write it."""
    return "[" * depth + "]" * depth


def _toml_value(rng: Random) -> str:
    return rng.choice(
        (
            *(
                "-1",
                "0",
                "1e999",
                "nan",
                "-inf",
                _DIGITS,
                "0x" + "f" * 4000,
                "1979-05-27",
                "true",
                '""',
                "''",
                "[]",
                "{}",
            ),
            *('"x"', '"\\u0000"', '"\\u202e"', '"' + "x" * 50_000 + '"', '["x", 1]', "{ kind = 1 }", '{ kind = "x" }'),
            *('{ kind = ".a:b" }', '"."', '"/dev/zero"', "[" * 2000 + "]" * 2000, "{a=" * 500 + "1" + "}" * 500),
            *("9223372036854775808", "1_000_000_000_000", "[[[1]]]", "0.1", '"\\ud800"', "x", ""),
        )
    )


def _change_value(line: str, rng: Random) -> str:
    """Another value somewhere in the JSON value of a line, a key more, or a key less."""
    try:
        value = json.loads(line)
        places = [place for place in _places(value) if place]
    except (ValueError, RecursionError):  # it was spoilt before
        return line
    if not places:
        return json.dumps(rng.choice(_VALUES))
    *way, last = rng.choice(places)
    holder = value
    for key in way:
        holder = holder[key]
    kind = rng.random()
    if kind < 0.7:
        holder[last] = rng.choice(_VALUES)
    elif kind < 0.8:
        del holder[last]
    elif kind < 0.9:
        holder[last] = [holder[last]] * rng.randint(0, 3)
    elif isinstance(holder, dict):
        holder[f"{last}{rng.choice(('x', ' ', chr(0xD800), chr(27)))}"] = holder.pop(last)
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "replace").decode()


def _places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    places = [way]
    if isinstance(value, dict):
        places += [place for key, inner in value.items() for place in _places(inner, (*way, key))]
    elif isinstance(value, list):
        places += [place for key, inner in enumerate(value) for place in _places(inner, (*way, key))]
    return places


def _change_text(line: str, rng: Random) -> str:
    """Another text where a number, a string or a bracket stood; the line may be no JSON afterwards."""
    kind = rng.randrange(7)
    if kind == 0:
        return re.sub(r"-?\d+(\.\d+)?", rng.choice(_NUMBERS), line, count=rng.randint(1, 2))
    if kind == 1:
        strange = rng.choice(_STRANGE_TEXTS)
        strings = list(re.finditer(r'": "([^"\\]*)"', line))
        if not strings:
            return line + strange
        start, end = rng.choice(strings).span(1)
        return line[:start] + strange + line[end:]
    if kind == 2:
        return line.replace("{", rng.choice(('{"task": 1, "task": 2, ', '{"reward": 0, ', '{"": 1, "": 2, ')), 1)
    if kind == 3:
        return re.sub(r': (-?\d+(\.\d+)?|"[^"]*")', ": " + deep_list(rng.choice((50, 2000, MAX_DEPTH))), line, count=1)
    if kind == 4:
        return line[: rng.randrange(len(line) + 1)]
    if kind == 5:
        return line + rng.choice((",", "}", "]", " {}", "\x00", "\u2028", "\x0b"))
    position = rng.randrange(len(line) + 1)
    return line[:position] + rng.choice(('"', "{", "[", ",", ":", "\\", "\t", "\x7f")) + line[position:]


def _change_order(lines: list[str], number: int, rng: Random) -> list[str]:
    kind = rng.randrange(4)
    if kind == 0:
        return [*lines[:number], lines[number], *lines[number:]]
    if kind == 1:
        return [*lines[:number], *lines[number + 1 :]]
    if kind == 2:
        return rng.sample(lines, len(lines))
    return [*lines[:number], rng.choice(("", "   ", "null", "[]", "0", '"x"', "{}", "\ufeff")), *lines[number:]]


def _slice(data: bytes, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 64, 4096)))


def _cut_off(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flip_bit(data: bytes, rng: Random) -> bytes:
    spoilt = bytearray(data)
    for _ in range(rng.choice((1, 1, 8)) if data else 0):
        spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)


def _put_in_bytes(data: bytes, rng: Random) -> bytes:
    start, _ = _slice(data, rng)
    return data[:start] + rng.choice((b"\x00", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", rng.randbytes(16))) + data[start:]


def _drop_slice(data: bytes, rng: Random) -> bytes:
    start, end = _slice(data, rng)
    return data[:start] + data[end:]


def _repeat_slice(data: bytes, rng: Random) -> bytes:
    start, end = _slice(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 2, 100)) + data[end:]


def _zero_slice(data: bytes, rng: Random) -> bytes:
    start, end = _slice(data, rng)
    return data[:start] + bytes(end - start) + data[end:]


def _swap_slices(data: bytes, rng: Random) -> bytes:
    middle, end = _slice(data, rng)
    return data[middle:end] + data[:middle] + data[end:]


def _compress(data: bytes, rng: Random) -> bytes:
    packed = gzip.compress(data, compresslevel=1, mtime=0)
    return packed if rng.random() < 0.3 else rng.choice((_cut_off, _flip_bit, _put_in_bytes))(packed, rng)


def _prefix(data: bytes, rng: Random) -> bytes:
    magic = (
        b"\xef\xbb\xbf",
        b"\x1f\x8b",
        b"PAR1",
        b"\x28\xb5\x2f\xfd",
        b"BZh9",
        b"\xff\xfe",
        b"PK\x03\x04",
        b"\n" * 64,
    )
    return rng.choice(magic) + data
