"""Files of rows, as people and publishers have them: JSON lines, JSON or Parquet, one object a row.

A file's or folder's name may say its split (train, validation, test); what no name says follows from the content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import glob, has_magic
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

from groupwise.envs.kit.task_set import split_of_content
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.json_text import parse_json

SUFFIXES = (".jsonl", ".json", ".parquet")
LISTED = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
SAYS_SPLIT = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}
"""Words in the name of a file or folder that set its split."""
Row = Mapping[str, Any]
Entry = TypeVar("Entry")


def find_row_files(path: str, *, env: str, rows: str) -> list[tuple[Path, tuple[str, ...]]]:
    """The files of a file, a folder or a pattern such as `*.jsonl`, each with the names that may contain its split.

    Folders above `path` do not count. `env` and `rows` are for the error message.
    """
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.rglob("*") if file.suffix in SUFFIXES)
        named = [(file, file.relative_to(place).with_suffix("").parts) for file in files]
    else:
        files = [place] if place.is_file() or not has_magic(path) else [*map(Path, sorted(glob(path)))]
        named = [(file, (file.stem,)) for file in files if file.is_file()]
    if not named:
        raise ConfigError(
            f"{env}: there are no {rows} at {path!r}; give a file, a folder or a pattern of {', '.join(SUFFIXES)} files"
        )
    return named


def read_split_name(parts: Iterable[str]) -> tuple[str, str]:
    """The split in a name, and the rest: the name of the dataset. Both may be empty.

    >>> read_split_name(("gsm8k_train",)), read_split_name(("test", "algebra", "12"))
    (('train', 'gsm8k'), ('test', 'algebra'))
    """
    tokens = [token for part in parts for token in re.split(r"[^a-z0-9]+", part.lower()) if token]
    splits = [SAYS_SPLIT[token] for token in tokens if token in SAYS_SPLIT]
    # Numbers are no names: parts of a dataset ("train-00000-of-00002"), files of one problem ("12.json").
    names = [token for token in tokens if token not in SAYS_SPLIT and token != "of" and not token.isdigit()]
    return splits[-1] if splits else "", "_".join(names)


def read_rows(file: Path, *, row_name: str) -> Iterator[tuple[str, Row]]:
    """The rows of a file, each with its place: file:line for JSON lines, else the row number."""
    if file.suffix not in SUFFIXES:
        named = repr(file.suffix) if file.suffix else "none"
        raise ConfigError(f"{file}: the file suffix is {named}; expected {LISTED}")
    read = {".parquet": _read_parquet, ".jsonl": _read_lines, ".json": _read_json}[file.suffix]
    for where, row in read(file):
        if not isinstance(row, Mapping):
            raise FileError(f"{where}: found {type(row).__name__}; {row_name} is an object with named fields")
        yield where, row


def _read_lines(file: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if line.strip():
            try:
                yield f"{file}:{number}", parse_json(line)
            except ValueError as error:
                what = f"{error.msg} at column {error.colno}" if isinstance(error, JSONDecodeError) else str(error)
                raise FileError(
                    f"{file}:{number}: not JSON: {what}; fix the line, or download the file again"
                ) from None


def _read_json(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        content = parse_json(read_text(file))
    except ValueError as error:
        raise FileError(f"{file}: not JSON: {error}; download the file again") from None
    for number, row in enumerate(content if isinstance(content, list) else [content], start=1):
        yield f"{file}, row {number}", row


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{file}: byte {error.start + 1} is not UTF-8; download the file again") from None
    except OSError as error:
        raise FileError(f"{file}: cannot be read ({error.strerror}); check the file permissions") from None


def _read_parquet(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigError(
            f"{file}: Parquet needs a package that is not installed; pip install 'groupwise[parquet]'"
        ) from None
    try:
        rows = parquet.read_table(file).to_pylist()
    except pyarrow.ArrowException as error:
        raise FileError(f"{file}: not Parquet: {error}; download the file again") from None
    for number, row in enumerate(rows, start=1):
        yield f"{file}, row {number}", row


def assign_splits(
    entries: Sequence[Entry],
    *,
    said: Callable[[Entry], str],
    content: Callable[[Entry], Mapping[str, Any]],
    has_test: bool,
) -> list[tuple[str, Entry]]:
    """Each entry with its split, which `said` returns (empty = not set).

    If some entries are for training, those without a split are for the test, and a missing split is cut out of
    training, by content (not the test if `has_test`: it has its own files). Otherwise, entries without a split are
    divided by content.
    """
    splits_said = {said(entry) for entry in entries}
    if "train" not in splits_said:
        return [(said(entry) or split_of_content(content(entry)), entry) for entry in entries]
    splits_given = splits_said | ({"test"} if has_test or "" in splits_said else set())
    assigned = []
    for entry in entries:
        split = said(entry) or "test"
        by_content = split_of_content(content(entry))
        assigned.append((by_content if split == "train" and by_content not in splits_given else split, entry))
    return assigned
