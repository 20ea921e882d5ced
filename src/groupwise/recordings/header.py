"""The header that names the format of a rollouts file and its version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from groupwise.core.errors import nearest
from groupwise.core.text.json_text import describe_strangeness
from groupwise.core.text.safe_text import escape_surrogates
from groupwise.recordings.json_values import to_json_value
from groupwise.recordings.row import KEYS, quote_json, quote_key

FORMAT = "groupwise.rollouts"
VERSION = 1
"""Grows when a file of the old version would be read with another meaning; see docs/rollouts.md."""

NOT_OURS = (
    "if another program wrote it, name its format (`--format verl_agent` or `--format verifiers`, "
    'open_rollouts(path, format="...")) or its columns (`--map task=prompt_id,reward=score`), else put the header '
    f'{{"format": "{FORMAT}", "version": {VERSION}, "meta": {{}}}} first'
)

_KEYS = ("format", "version", "meta", "json")


def make_header(meta: Mapping[str, Any] | None, *, json_columns: tuple[str, ...] = ()) -> str:
    """Write the header as JSON text; `json_columns` are those a Parquet file stores as JSON text."""
    fields: dict[str, Any] = {"format": FORMAT, "version": VERSION, "meta": to_json_value(dict(meta or {}))}
    if json_columns:
        fields["json"] = list(json_columns)
    return escape_surrogates(json.dumps(fields, ensure_ascii=False, allow_nan=False))


def is_header(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value claims to be the header of a rollouts file, of whatever version."""
    return isinstance(value, dict) and value.get("format") == FORMAT


def find_header_fault(header: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a header, or None."""
    version = header.get("version")
    if version != VERSION:
        advice = "update groupwise, or write the file again" if isinstance(version, int) else "write the file again"
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
