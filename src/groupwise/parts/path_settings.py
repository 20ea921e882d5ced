"""Settings that are paths.

A path in a run file is relative to the file. A path of `--set`, or in settings from Python, is relative to the working
directory. A run folder has absolute paths, so the run resumes from anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from glob import escape, has_magic
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema


class WrittenText(str):
    """A text of a run file, with the folder of the file."""

    folder: str = ""


def write_in(content: Any, folder: Path) -> Any:
    """The content of a run file, with its folder in every text."""
    if isinstance(content, dict):
        return {key: write_in(value, folder) for key, value in content.items()}
    if isinstance(content, list):
        return [write_in(value, folder) for value in content]
    if not isinstance(content, str):
        return content
    text = WrittenText(content)
    text.folder = str(folder)
    return text


def make_absolute(path: str, *, of: str | None = None) -> str:
    """The absolute path; an empty path, or one that begins with a variable such as $DATA, stays as it is.

    >>> make_absolute("/data/*.jsonl"), make_absolute("$DATA/games"), make_absolute("")
    ('/data/*.jsonl', '$DATA/games', '')

    Args:
        path: the path.
        of: the text that contains the path; None = the path itself.
    """
    place = os.path.expanduser(path)
    if not path or path.startswith("$") or os.path.isabs(place):
        return place
    folder = os.path.realpath(getattr(path if of is None else of, "folder", ""))  # `..` of a link is another folder
    # Brackets in the folder's own name are not a pattern.
    return os.path.normpath(os.path.join(escape(folder) if has_magic(path) else folder, place))


def resolve_by(resolve: Callable[[str], str]) -> BeforeValidator:
    """Pass a field's text through a function before it is validated."""
    return BeforeValidator(lambda value: resolve(value) if isinstance(value, str) else value)


ABSOLUTE = resolve_by(make_absolute)
SHOWN_AS_PATH = WithJsonSchema({"type": "string", "format": "path"})
PathText = Annotated[str, ABSOLUTE, SHOWN_AS_PATH]
"""A field with a path."""
