"""The columns of anybody's file, as the command line maps them to the keys of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from groupwise.recordings.foreign.column_map import ColumnMap

MapEntries = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="KEY=COLUMN,...",
        help="Of a JSON Lines or Parquet file of any program: which of its columns is which key of a row, such as "
        "task=prompt_id,reward=reward_model.score. Without attempt, every row is an attempt.",
    ),
]
"""An option of commands that read rollouts."""


def read_column_map(entries: Sequence[str] | None) -> Mapping[str, str] | None:
    """The mapped columns, or None where none are."""
    return ColumnMap.parse(entries).columns if entries else None
