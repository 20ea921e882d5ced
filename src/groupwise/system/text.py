"""Makes external text (of models, environments, files) safe for files, for a terminal, and for one-line messages.

A lone surrogate is half of a character and cannot be written as UTF-8. A control character moves the cursor, rings the
bell or, after an escape, writes to the clipboard. A bidirectional mark reorders the text on the screen. All of them are
shown as Python's escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

MAX_QUOTED_CHARACTERS = 500
"""Characters of an external text in a message: enough to recognise it, too few to fill a screen."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# C0 without tab and newline, delete and C1, line and paragraph separators, marks that set or change the direction of
# text, the other invisible format characters, and surrogates.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def escape_surrogates(text: str) -> str:
    r"""The text with lone surrogates as escapes; it can be written as UTF-8.

    >>> escape_surrogates("half \ud83d of a face")
    'half \\ud83d of a face'
    """
    return text if text.isascii() else _SURROGATE.sub(_escape, text)


def escape_controls(text: str) -> str:
    r"""The text with control, format and direction characters as escapes; newlines and tabs stay.

    >>> escape_controls("\x1b]52;c;aGk=\x07 \u202etxt.exe")
    '\\x1b]52;c;aGk=\\x07 \\u202etxt.exe'
    """
    return _UNSHOWN.sub(_escape, text)


def quote_line(text: str, *, limit: int = MAX_QUOTED_CHARACTERS) -> str:
    r"""The first line of a text for a message: escaped, and cut with an ellipsis.

    >>> quote_line("bad \x1b[2J thing\nTraceback ...", limit=12)
    'bad \\x1b[2J…'
    """
    # Cut first: the text may have a gigabyte.
    line = next(iter(text[: 2 * limit].splitlines()), "")
    shown = escape_controls(line)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _escape(character: re.Match[str]) -> str:
    code = ord(character[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# The text of each token of a sequence; joined, they are the text of the sequence.

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer gives while the bytes of a character are incomplete."""

MAX_TOKENS_OF_CHARACTER = 8
"""Most tokens of one character: bytes that are longer incomplete are shown as they are."""

Decoder = Callable[[Sequence[int]], str]
"""The text of a sequence of ids."""


def cut_text(ids: Sequence[int], decode: Decoder) -> list[str]:
    """The text that each token adds to those before it.

    A token alone may decode to another text than after other tokens, for example without its space. If a character has
    several tokens, the last of them gets it. Only a few tokens are decoded at a time.

    >>> cut_text([1, 2], {(): "", (1,): "a", (1, 2): "a b", (2,): "b"}.__getitem__)
    ['a', ' b']
    """
    pieces: list[str] = []
    begin = done = 0  # decoding starts one finished piece earlier, so no new token is the first
    for end in range(1, len(ids) + 1):
        known, longer = decode(tuple(ids[begin:done])), decode(tuple(ids[begin:end]))
        if longer.endswith(UNFINISHED) and end < len(ids) and end - done < MAX_TOKENS_OF_CHARACTER:
            pieces.append("")
        else:
            pieces.append(longer[len(known) :])
            begin, done = done, end
    return pieces


def describe_value(value: object) -> str:
    """A value's type and size, for a message.

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
