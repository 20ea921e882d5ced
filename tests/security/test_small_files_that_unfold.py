"""A small file cannot take the memory of the machine, whatever it unfolds into."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.store import RolloutsFile, write_rollouts
from groupwise.system.errors import FileError
from groupwise.system.files import parse_toml
from tests.unit.store.rows import HEADER, ROW

MEMORY = 2 << 30
CHECK = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory})); "
    "sys.argv = ['groupwise', 'check', 'rollouts', {path!r}]; "
    "from groupwise.cli.main import main; main()"
)


def test_three_gigabytes_in_one_line_of_a_gzip_stream_of_three_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.gz"
    member = gzip.compress(b"x" * (64 << 20), compresslevel=9)
    path.write_bytes(gzip.compress((json.dumps(HEADER) + "\n").encode()) + member * 48)
    assert path.stat().st_size < 4 << 20
    command = [sys.executable, "-c", CHECK.format(memory=MEMORY, path=str(path))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | {"COLUMNS": "300"})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        "rollouts.jsonl.gz, line 2: the line is longer than 64 MiB; a line holds a step or an episode: check the "
        "program that wrote it"
    )
    assert "Traceback" not in done.stderr


def test_a_parquet_page_that_repeats_one_entry_without_end(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    write_rollouts(tmp_path / "good.parquet", [ROW | {"response_ids": [0]}])
    table = parquet.read_table(tmp_path / "good.parquet")
    ids = pyarrow.array([[0] * (9 << 20)], type=pyarrow.list_(pyarrow.int64()))
    position = table.schema.get_field_index("response_ids")
    path = tmp_path / "rollouts.parquet"
    parquet.write_table(table.set_column(position, table.schema.field(position), ids), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(FileError) as caught:
        list(RolloutsFile.open(path).rows())
    assert str(caught.value) == (
        f"{path}: column 'response_ids.list.element' holds 9437184 entries in 1 rows; a row holds one step: write the "
        "file again"
    )


@pytest.mark.parametrize(
    "text", ["a." * 100_000 + "a = 1", "[" + "a." * 100_000 + "a]", "x = {" + "'a' . " * 50_000 + "a = 1}"]
)
def test_dotted_keys_whose_parts_the_reader_would_square(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a key in it has more than 32 parts with dots between them$"):
        parse_toml(text)
