"""Data sets of the package `datasets`: a folder that `save_to_disk` wrote, or a name on the hub. All that adapts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.core.errors import ConfigError, FileError
from groupwise.core.parts.path_settings import make_absolute, resolve_by
from groupwise.core.text.exceptions import quote_error

HUB = "hub:"
"""What a path begins with that is the name of a data set on the hub."""
DATA_PLACE = resolve_by(lambda path: path if path.startswith(HUB) else make_absolute(path))
"""Makes the path of a field absolute, but for the name of a data set on the hub."""
SAVED = ("dataset_dict.json", "state.json")
"""Files of a folder that `save_to_disk` wrote: several splits, or one set."""


def is_hugging_face(path: str) -> bool:
    """Whether a path is the name of a data set on the hub, or a folder that `save_to_disk` wrote."""
    return path.startswith(HUB) or any((Path(path) / name).is_file() for name in SAVED)


def read_hugging_face(path: str, *, subset: str = "", revision: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The rows of a data set, each with its place and the name of its split; empty where it has no splits."""
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data_set: {path!r} needs a package that is not here; pip install 'groupwise[datasets]'"
        ) from None
    try:
        loaded = (
            datasets.load_dataset(path.removeprefix(HUB), subset or None, revision=revision or None)
            if path.startswith(HUB)
            else datasets.load_from_disk(path)
        )
    except Exception as error:  # a server that does not answer, a name that is none, a folder that is damaged
        raise FileError(
            f"data_set: {path!r} cannot be loaded ({quote_error(error)}); give a name that is on the hub, with the "
            "subset that it asks for, or a folder that save_to_disk wrote"
        ) from None
    splits = loaded if isinstance(loaded, dict) else {"": loaded}
    for split, rows in splits.items():
        for number, row in enumerate(rows, start=1):
            yield f"{path}, {f'{split} ' if split else ''}row {number}", split, dict(row)
