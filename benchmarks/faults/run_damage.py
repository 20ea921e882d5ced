"""Damage to a run's folder: a file spoilt, emptied, taken away or changed for another, or a row of its journal."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random

from groupwise.store.run_folder import LATEST, RunPaths
from tests.faults.mutations import mutate_bytes, mutate_json_lines, mutate_toml

PAGE = 4096
ODD_VALUES = (None, "x", "", -1, 2**62, 1e300, b"\xff\x00", "[1, 2", '{"a": NaN}', "\x1b]52;c;aGk=\x07", "\u202e")


def damage(folder: Path, rng: Random, *, rows_too: bool) -> str:
    """Damage a run's folder in one way; what was done."""
    if rows_too and rng.random() < 0.4:
        return _damage_row(folder, rng)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    # The journal, its log and the pointer are few among many files, and they matter most.
    kept = [path for path in files if path.name.startswith("journal") or path.name == LATEST]
    path = rng.choice(kept if rng.random() < 0.4 else files)
    name, deed = path.relative_to(folder).as_posix(), rng.randrange(10)
    if deed == 0:
        path.unlink()
        return f"{name} taken away"
    if deed == 1:
        path.write_bytes(b"")
        return f"{name} emptied"
    if deed == 2:
        other = rng.choice(files)
        path.write_bytes(other.read_bytes())
        return f"{name} changed for {other.relative_to(folder).as_posix()}"
    if deed == 3:
        path.unlink()
        path.mkdir()
        return f"{name} made a folder"
    path.write_bytes(_spoilt(path, rng))
    return f"{name} spoilt"


def _spoilt(path: Path, rng: Random) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".json" and rng.random() < 0.7:
        return mutate_json_lines(content.decode(), rng).encode("utf-8", "surrogatepass")
    if path.suffix == ".toml" and rng.random() < 0.7:
        return mutate_toml(content.decode(), rng).encode("utf-8", "surrogatepass")
    if path.name.startswith("journal") and len(content) > PAGE and rng.random() < 0.4:
        start = rng.randrange(len(content) // PAGE) * PAGE
        return content[:start] + bytes(PAGE) + content[start + PAGE :]
    return mutate_bytes(content, rng)


def _damage_row(folder: Path, rng: Random) -> str:
    """Write something odd into a column of the journal, whatever the column is for."""
    with closing(sqlite3.connect(RunPaths(folder).journal)) as journal:
        tables = [name for (name,) in journal.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = rng.choice(sorted(tables))
        column = rng.choice([row[1] for row in journal.execute(f'PRAGMA table_info("{table}")')])
        olds = [row[0] for row in journal.execute(f'SELECT "{column}" FROM "{table}"')]
        value, old = rng.choice(ODD_VALUES), rng.choice(olds) if olds else None
        with suppress(sqlite3.Error):  # a constraint may forbid it
            journal.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" IS ?', (value, old))
            journal.commit()
    return f"{table}.{column} of the journal set to {value!r}"


def copy_run(source: Path, target: Path) -> Path:
    """A copy of a run's folder, in place of what was there."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))
