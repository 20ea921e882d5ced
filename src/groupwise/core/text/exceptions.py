"""Somebody else's exception in one line: its class and what it says, without secrets, or the place it came from."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from groupwise.core.text.safe_text import MAX_QUOTED_CHARACTERS, quote_line
from groupwise.core.text.secrets import redact

MAX_SEARCHED_CHARACTERS = 8 * MAX_QUOTED_CHARACTERS
"""Of somebody else's text that is searched for secrets before it is cut."""


def quote_error(error: BaseException) -> str:
    r"""An exception in one line: its class and the first line of what it says, whatever that is.

    >>> quote_error(RuntimeError("half \ud83d\nTraceback ..."))
    'RuntimeError: half \\ud83d'
    """
    try:
        message = str(error)
    except Exception:  # somebody else's __str__
        message = "its message cannot be shown"
    # Secrets first: half of one, cut off, would no longer be known for what it is.
    return quote_line(redact(f"{type(error).__name__}: {message[:MAX_SEARCHED_CHARACTERS]}"))


def quote_error_with_place(error: Exception, module: str) -> str:
    """An exception in one line, with the last place in the package of `module` that it came through."""
    package = module.partition(".")[0]
    places = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    own = [place for place in places if str(place[0]).partition(".")[0] == package]
    _, file, line = (own or places)[-1]
    message = quote_line(str(error), limit=200)
    return f"{type(error).__name__}{f': {message}' if message else ''} ({file}:{line})"


def quote_line_in(error: Exception, function: Callable[..., Any]) -> str:
    """The last line of a function's own file that an error came through, in brackets; empty where there is none."""
    file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", None)
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f" ({Path(str(file)).name}:{lines[-1]})" if lines else ""
