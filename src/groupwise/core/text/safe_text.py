"""Text from outside (models, environments, files) made safe to store, to show on a terminal, and to quote in a line.

A lone surrogate is half of a character: it can be held in memory but not written as UTF-8. A control character moves
the cursor, rings the bell or, after an escape, writes to the clipboard. A bidirectional mark reorders what a reader
sees. None of them is sent to a file or a terminal; each is shown as the escape that Python would write for it.
"""

from __future__ import annotations

import re

MAX_QUOTED_CHARACTERS = 500
"""Of somebody else's text in a message of ours: enough to recognise it, too little to fill a screen or a journal."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# C0 without tab and newline, delete and C1, line and paragraph separators, marks that set or change the direction of
# text, the other invisible format characters, and surrogates.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def escape_surrogates(text: str) -> str:
    r"""The text with each lone surrogate as its escape, so that it can be written as UTF-8.

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
    r"""The first line of a text as a message may hold it: shown whole, escaped, and cut with an ellipsis.

    >>> quote_line("bad \x1b[2J thing\nTraceback ...", limit=12)
    'bad \\x1b[2J…'
    """
    # Cut first: a text of a gigabyte must not be searched for what nobody will see.
    line = next(iter(text[: 2 * limit].splitlines()), "")
    shown = escape_controls(line)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _escape(character: re.Match[str]) -> str:
    code = ord(character[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
