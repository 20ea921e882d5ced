"""Small text files from outside, read whole: run files, panel files, prompts.

A file that is none (a pipe, a device), that is far too large or that is no UTF-8 is refused before it is held in
memory, and TOML that Python's reader cannot follow is told in words.
"""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from groupwise.core.text.json_text import MAX_NESTING
from groupwise.core.text.safe_text import quote_line

MAX_TEXT_BYTES = 1 << 20
"""Of a file that people write: a thousand times what a run file takes."""
MAX_KEY_PARTS = 32
MAX_DIGITS = 100

_TOO_DEEP = "its lists and tables are nested too deep"
_TOO_LARGE = f"a number in it has more than {MAX_DIGITS} digits"
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}""", re.ASCII
)


def read_text_file(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """The text of a file, less a byte order mark; OSError where it cannot be opened, ValueError for what is no text."""
    if not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode)):
        raise ValueError("a pipe or a device is no file; copy it into one")
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"the file holds more than {max_bytes >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8 ({content[error.start]:#04x})") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The content of a TOML text; a ValueError says what is wrong with one that is none, or that nobody could mean."""
    if _LONG_KEY.search(text):  # Python's reader takes memory by the square of their number
        raise ValueError(f"a key in it has more than {MAX_KEY_PARTS} parts with dots between them")
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(quote_line(str(error))) from None
    except ValueError:  # Python's own advice is of no use to whoever has the file
        raise ValueError(_TOO_LARGE) from None
    _check_size(content)
    return content


def parse_value(text: str) -> Any:
    """A value as TOML writes it; bare words are text, as in `scale=none`."""
    try:
        content = parse_toml(f"value = {text}")
    except ValueError:
        return text
    return content["value"] if len(content) == 1 else text  # a line break would begin another setting


def _check_size(content: dict[str, Any]) -> None:
    """Refuse what is nested deeper than any setting, and integers that no message could print."""
    level: list[Any] = [content]
    for _ in range(MAX_NESTING):
        entries = [entry for holder in level for entry in (holder.values() if isinstance(holder, dict) else holder)]
        if any(isinstance(entry, int) and abs(entry) >= 10**MAX_DIGITS for entry in entries):
            raise ValueError(_TOO_LARGE)
        level = [entry for entry in entries if isinstance(entry, dict | list)]
    if level:
        raise ValueError(_TOO_DEEP)
