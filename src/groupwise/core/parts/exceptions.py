"""What a part of a user's own raised, in one line."""

from __future__ import annotations

import traceback
from types import FrameType

from groupwise.core.text.safe_text import quote_line


def tell_exception(error: Exception, module: str) -> str:
    """An exception in one line, with the last place in the part's own package that it came through."""
    package = module.partition(".")[0]
    places = [(frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line) for frame, line in _walk(error)]
    own = [place for place in places if str(place[0]).partition(".")[0] == package]
    _, file, line = (own or places)[-1]
    said = quote_line(str(error), limit=200)
    return f"{type(error).__name__}{f': {said}' if said else ''} ({file}:{line})"


def _walk(error: Exception) -> list[tuple[FrameType, int]]:
    return list(traceback.walk_tb(error.__traceback__))
