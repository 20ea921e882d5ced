"""Reads a JSON Lines file, plain or gzip, line by line; errors name the line.

The memory is bounded whatever the file holds: a line has a maximal length, also after decompression, and only files
are read, never an endless pipe or device.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeGuard

from groupwise.store.rollout_rows import KEYS, OLD_KEYS, RolloutRow, quote_json, quote_key, to_json_value
from groupwise.system.errors import FileError, nearest
from groupwise.system.json_text import describe_strangeness, parse_json
from groupwise.system.text import escape_surrogates

Progress = Callable[[int], None]
"""Called from time to time with the number of bytes that were read."""

GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"

MAX_LINE_BYTES = 64 << 20
"""Of one line, uncompressed: twice what a step with a million tokens takes, with their ids and log-probs."""

_OTHER_MAGIC = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zX": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
}
"""The first bytes of files that another program than gzip compressed."""
_PROGRESS_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 18
"""Lines are a few kilobytes long: with Python's 8 KiB, half of them would be joined from two pieces."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_first_bytes(path: Path, count: int = 4) -> bytes:
    """The first bytes of a file, from which its format is recognised; a missing or empty file is an error."""
    try:
        if not path.exists():
            raise FileError(f"{path}: there is no such file; check the path")
        if path.is_dir():
            raise FileError(f"{path}: this is a folder; give one rollouts file, or the folder of a run")
        if not path.is_file():  # opening a pipe would wait for a writer, and a device may be endless
            raise FileError(f"{path}: this is a pipe or a device, and is read more than once; copy it into a file")
        with path.open("rb") as file:
            first = file.read(count)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    if not first:
        raise FileError(f"{path}: the file is empty; check that the run that wrote it finished its first step")
    for magic, name in _OTHER_MAGIC.items():
        if first.startswith(magic):
            raise FileError(f"{path}: the file is compressed by {name}; unpack it, or compress it with gzip")
    return first


@dataclass(frozen=True)
class JsonLines:
    """A JSON Lines file as a stream of (line number from 1, value); blank lines are skipped."""

    path: Path
    is_compressed: bool = False
    unit: ClassVar[str] = "line"

    @classmethod
    def open(cls, path: Path) -> JsonLines:
        """Find out whether the file is compressed."""
        return cls(path, is_compressed=read_first_bytes(path).startswith(GZIP_MAGIC))

    def values(self, progress: Progress | None = None) -> Iterator[tuple[int, Any]]:
        number = done = reported = 0
        try:
            with self.path.open("rb", buffering=_BUFFER_BYTES) as file:
                # No larger buffer around gzip's own: it would lose the lines before the cut of a truncated stream.
                content = gzip.GzipFile(fileobj=file) if self.is_compressed else file
                for line in iter(partial(content.readline, MAX_LINE_BYTES + 1), b""):
                    number += 1
                    if len(line) > MAX_LINE_BYTES:
                        raise FileError(
                            f"{self.path}, line {number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB; a line "
                            "holds a step or an episode: check the program that wrote it",
                            row=number,
                        )
                    done += len(line)
                    if progress is not None and done - reported >= _PROGRESS_BYTES:
                        reported = done
                        progress(file.tell() if self.is_compressed else done)
                    if number == 1 and line.startswith(_BYTE_ORDER_MARK):
                        line = line[len(_BYTE_ORDER_MARK) :]
                    if line.isspace():
                        continue
                    try:
                        value = parse_json(line.decode("utf-8"))
                    except ValueError as error:
                        raise self._make_line_error(number, line, error) from None
                    yield number, value
                if progress is not None:
                    progress(file.tell())
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(
                f"{self.path}, after line {number}: the gzip stream is cut off or corrupt ({error}); "
                "copy the file again, or recover its beginning with `gzip -dc`"
            ) from error
        except OSError as error:
            raise FileError(
                f"{self.path}, after line {number}: cannot be read any further ({error.strerror}); check the disk"
            ) from error

    def first(self) -> Any:
        """The first line's value; None if all lines are blank."""
        return next((value for _, value in self.values()), None)

    def _make_line_error(self, number: int, line: bytes, error: Exception) -> FileError:
        where = f"{self.path}, line {number}"
        if isinstance(error, UnicodeDecodeError):
            return FileError(
                f"{where}: byte {error.start + 1} of the line is not UTF-8 ({quote_json(line[error.start])}); "
                "the file must be UTF-8 text: convert it, for instance with `iconv -t utf-8`"
            )
        if not isinstance(error, json.JSONDecodeError):
            return FileError(f"{where}: {error}; repair or drop the line", row=number)
        if not line.endswith(b"\n"):
            return FileError(
                f"{where}: the file ends in the middle of this line; the writer was cut off: "
                "drop the last line, or write the file again"
            )
        advice = "repair or drop the line"
        if number == 1 and not line.lstrip().startswith(b"{"):
            advice = "a rollouts file has one JSON object per line (docs/reference/rollouts.md)"
        return FileError(f"{where}: not valid JSON at column {error.colno} ({error.msg}); {advice}", row=number)


# The header of a rollouts file: the name and version of the format.

FORMAT = "groupwise.rollouts"
VERSION = 2
"""It grows when files of the old version would be read with another meaning; see docs/reference/rollouts.md."""

NOT_OURS = (
    "if another program wrote it, name its format (`--format verl_agent` or `--format verifiers`, "
    'open_rollouts(path, format="...")) or its columns (`--map task=prompt_id,reward=score`), else put the header '
    f'{{"format": "{FORMAT}", "version": {VERSION}, "meta": {{}}}} first'
)

_KEYS = ("format", "version", "meta", "json")


def make_header(meta: Mapping[str, Any] | None, *, json_columns: tuple[str, ...] = ()) -> str:
    """The header as JSON text; `json_columns` are the columns that a Parquet file stores as JSON text."""
    fields: dict[str, Any] = {"format": FORMAT, "version": VERSION, "meta": to_json_value(dict(meta or {}))}
    if json_columns:
        fields["json"] = list(json_columns)
    return escape_surrogates(json.dumps(fields, ensure_ascii=False, allow_nan=False))


def is_header(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is the header of a rollouts file, of any version."""
    return isinstance(value, dict) and value.get("format") == FORMAT


def find_header_fault(header: Mapping[str, Any]) -> str | None:
    """What is wrong with a header, or None."""
    version = header.get("version")
    if version != VERSION:
        advice = "update groupwise, or write the file again" if isinstance(version, int) else "write the file again"
        if version == 1:
            renames = ", ".join(f"{old!r} to {new!r}" for old, new in OLD_KEYS.items())
            advice = f"rename its keys {renames}, and set version {VERSION}"
        return (
            f"the file is of version {quote_json(version)} of the format, and this groupwise reads {VERSION}; {advice}"
        )
    for name in header:
        if name not in _KEYS:
            advice = f"{nearest(name, _KEYS)} (notes of your own go into 'meta')"
            return f"unknown key {quote_key(name)} in the header; {advice}"
    meta, coded = header.get("meta", {}), header.get("json", [])
    if not isinstance(meta, dict):
        return f"'meta' in the header is {quote_json(meta)}; it takes an object of notes"
    if (inside := describe_strangeness(meta)) is not None:
        return f"'meta' in the header {inside}; it takes text, finite numbers, lists and objects"
    if not isinstance(coded, list) or not all(isinstance(name, str) and name in KEYS for name in coded):
        return f"'json' in the header is {quote_json(coded)}; it takes a list of columns"
    return None


# Rollouts as JSON Lines: the header on the first line, then one object per step.


def read_jsonl_meta(lines: JsonLines) -> Mapping[str, Any]:
    """The notes in the header; a file without a valid header is an error."""
    header = lines.first()
    if header is None:
        raise FileError(f"{lines.path}: the file holds only blank lines; check the run that wrote it")
    if not is_header(header):
        raise FileError(f"{lines.path}, line 1: this is not the header of a groupwise rollouts file; {NOT_OURS}")
    fault = find_header_fault(header)
    if fault is not None:
        raise FileError(f"{lines.path}, line 1: {fault}")
    meta: dict[str, Any] = header.get("meta", {})
    return meta


def read_jsonl_rows(
    lines: JsonLines, progress: Progress | None, left_out: Counter[str]
) -> Iterator[tuple[int, RolloutRow]]:
    """Every row after the header, with its line number."""
    values = lines.values(progress)
    next(values)
    return values
