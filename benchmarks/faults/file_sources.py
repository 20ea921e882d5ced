"""Sound files of every kind that groupwise reads, and how each is spoilt."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.faults.endings import ROOT
from groupwise.envs import Gridworld, Identity
from groupwise.envs.kit.task_set import TaskSetFile
from groupwise.store import write_rollouts
from tests.faults.mutations import mutate_bytes, mutate_json_lines

DUMPS = ROOT / "tests" / "unit" / "store" / "data"
EXAMPLE = ROOT / "examples" / "alfworld_rollouts.jsonl"
NUM_ROWS = 60
LONG_LINE_BYTES = 3 * 2**30


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of file."""

    name: str
    """What a spoilt copy is called."""
    content: bytes
    spoil: Callable[[bytes, Random], bytes]
    sure_to_fail: bool = False
    """Whether no spoilt copy can be read."""


def make_sources(folder: Path) -> list[Source]:
    """A sound file of each kind; some are listed twice, to be spoilt in another way."""
    lines = "".join(EXAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)[: NUM_ROWS + 1])
    rows = [json.loads(line) for line in lines.splitlines()[1:]]
    rich = _rich(rows)
    write_rollouts(folder / "sound.parquet", iter(rows))
    parquet = (folder / "sound.parquet").read_bytes()
    packed = gzip.compress(rich.encode(), mtime=0)
    sources = [
        Source(name="rollouts.jsonl", content=lines.encode(), spoil=_spoil_lines),
        Source(name="rich.jsonl", content=rich.encode(), spoil=_spoil_lines),
        Source(name="rollouts.jsonl.gz", content=packed, spoil=mutate_bytes),
        Source(name="cut.jsonl.gz", content=packed, spoil=_cut_off, sure_to_fail=True),
        Source(name="lines.jsonl.gz", content=rich.encode(), spoil=_spoil_and_pack),
        Source(name="rollouts.parquet", content=parquet, spoil=mutate_bytes),
        Source(name="cut.parquet", content=parquet, spoil=_cut_off, sure_to_fail=True),
        Source(name="columns.parquet", content=parquet, spoil=_spoil_columns),
    ]
    for path in sorted(DUMPS.glob("*.jsonl")):
        sources += [Source(name=path.name, content=path.read_bytes(), spoil=_spoil_lines)] * 2
    for number, part in enumerate((Identity(), Gridworld(size=3))):
        path = folder / f"task_set_{number}.json"
        TaskSetFile.of(part).write(path)
        sources.append(Source(name=path.name, content=path.read_bytes(), spoil=_spoil_lines))
    return sources


def long_line() -> Source:
    """Three gigabytes of one line in three megabytes of gzip."""
    member = gzip.compress(b"x" * 2**26, mtime=0)
    begin = gzip.compress(b'{"format": "groupwise.rollouts", "version": 2, "meta": {}}\n{"task": "', mtime=0)
    content = begin + member * (LONG_LINE_BYTES // 2**26)
    return Source(name="long_line.jsonl.gz", content=content, spoil=lambda data, rng: data, sure_to_fail=True)


def _rich(rows: list[dict[str, Any]]) -> str:
    """Rows with every key that there is."""
    more = {
        "prompt_ids": [1, 2, 3],
        "response_ids": [4, 5],
        "logp_behaviour": [-0.5, -1.5],
        "entropy": [0.5, 0.25],
        "well_formed": True,
        "accepted": True,
        "version": 2,
        "extra": {"note": "seen"},
        "tokens": 2,
    }
    header = {"format": "groupwise.rollouts", "version": 2, "meta": {"by": "the campaign"}}
    return "".join(json.dumps(each) + "\n" for each in (header, *({**row, **more} for row in rows)))


def _spoil_lines(content: bytes, rng: Random) -> bytes:
    if rng.random() < 0.25:
        return mutate_bytes(content, rng)
    return mutate_json_lines(content.decode(), rng).encode("utf-8", "surrogatepass")


def _spoil_and_pack(content: bytes, rng: Random) -> bytes:
    return gzip.compress(_spoil_lines(content, rng), mtime=0)


def _cut_off(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content) // 8, len(content) - 8)]


def _spoil_columns(content: bytes, rng: Random) -> bytes:
    """A Parquet file with a column of another type, another name, or none."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(BytesIO(content))
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(table.num_columns)
        name, num = table.column_names[place], table.num_rows
        columns: list[Any] = [
            [None] * num,
            ["x"] * num,
            [10**15] * num,
            [float("nan")] * num,
            [b"\xff\xfe"] * num,
            [[1, 2]] * num,
            [{"a": 1}] * num,
            [True] * num,
            ["\x1b]52;c;aGk=\x07"] * num,
        ]
        if rng.random() < 0.2:
            table = table.drop_columns([name])
        elif rng.random() < 0.2:
            table = table.append_column(name, table.column(place))
        else:
            called = rng.choice((name, name, name, "odd", "\x1b[2J"))
            table = table.set_column(place, called, pyarrow.array(rng.choice(columns)))
    written = BytesIO()
    pyarrow.parquet.write_table(table, written)
    return written.getvalue()
