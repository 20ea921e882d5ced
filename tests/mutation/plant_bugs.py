"""Plant the bugs that planted_bugs.toml lists by hand, one at a time, in a copy, and see the tests named fail.

python tests/mutation/plant_bugs.py             all of them; fails where a bug is not noticed
python tests/mutation/plant_bugs.py p3o disco   those whose file or description holds one of the words

A tool plants signs and constants; these are the mistakes that one makes: a gradient that is not stopped, a number of
this micro-batch in the place of the whole step's, a memory that does not come back, a token that was not sampled.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
LIST = Path(__file__).parent / "planted_bugs.toml"
COPIED = ("src", "tests", "docs", "examples", "benchmarks", "conformance", "pyproject.toml", "README.md")
"""What the tests read."""
FAILED, COULD_NOT_RUN = 1, 3
"""How pytest ends where a test failed; anything else but 0 says that the tests could not run."""
LOG = "pytest.log"
"""What pytest said last, in the copy."""
SLOW_TO_IMPORT = ("torch", "transformers")
"""What is imported once, before bugs are planted: nothing of groupwise."""
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Of pytest; the last, since what is imported brings plugins of pytest with it."""


@dataclass(frozen=True)
class HandPlantedBug:
    """A bug that somebody could have written, and who notices it."""

    what: str
    """What goes wrong, in words."""
    file: str
    """Where it is planted, below `src/groupwise`."""
    line: str
    """What stands there, once in the file."""
    instead: str
    """What is planted in its place."""
    noticed_by: tuple[str, ...]
    """Tests of which one must fail, as pytest names them."""


def read_bugs(path: Path = LIST) -> list[HandPlantedBug]:
    """The list."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["planted"]
    return [HandPlantedBug(**row | {"noticed_by": tuple(row["noticed_by"])}) for row in rows]


def choose_bugs(bugs: Sequence[HandPlantedBug], words: Sequence[str]) -> list[HandPlantedBug]:
    """Those whose file or description holds one of the words; all where there is no word."""
    return [bug for bug in bugs if not words or any(word in f"{bug.file} {bug.what}" for word in words)]


def copy_project(folder: Path) -> None:
    """Copy what the tests read."""
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in COPIED:
        if (HERE / name).is_dir():
            shutil.copytree(HERE / name, folder / name, ignore=ignored)
        else:
            shutil.copy(HERE / name, folder / name)


def run_tests(folder: Path, tests: Sequence[str]) -> int:
    """How pytest ends in the copy, in a fork of this process, which has imported what takes long to import."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.chdir(folder)
        sys.path.insert(0, str(folder / "src"))
        os.dup2(os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        status = int(pytest.main([*OPTIONS, *tests]))
        sys.stdout.flush()
        os._exit(status)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(COULD_NOT_RUN)  # whatever happened: this copy of the process must not go on


def plant(folder: Path, bug: HandPlantedBug) -> bool:
    """Plant a bug, run its tests and take it out again; whether one of them failed."""
    path = folder / "src" / "groupwise" / bug.file
    text = path.read_text(encoding="utf-8")
    if text.count(bug.line) != 1:
        raise SystemExit(f"{bug.file} holds {bug.line!r} {text.count(bug.line)} times, not once; mend the list")
    path.write_text(text.replace(bug.line, bug.instead), encoding="utf-8")
    try:
        status = run_tests(folder, bug.noticed_by)
    finally:
        path.write_text(text, encoding="utf-8")
    if status not in (0, FAILED):
        raise SystemExit(f"{bug.file}: the tests could not run (pytest ended with {status}): {bug.noticed_by}")
    return status == FAILED


def main(words: Sequence[str]) -> int:
    """Plant the chosen bugs; 1 where one was not noticed."""
    bugs = choose_bugs(read_bugs(), words)
    sys.dont_write_bytecode = True
    for module in SLOW_TO_IMPORT:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_project(folder)
        tests = sorted({test for bug in bugs for test in bug.noticed_by})
        if run_tests(folder, tests) != 0:
            said = (folder / LOG).read_text(encoding="utf-8")
            raise SystemExit(f"{said}\nthe tests fail without any bug; mend them first")
        num_noticed = 0
        for bug in bugs:
            is_noticed = plant(folder, bug)
            num_noticed += is_noticed
            print(f"{'noticed ' if is_noticed else 'SURVIVED'}  {bug.file}: {bug.what}", flush=True)
    print(f"{num_noticed} of {len(bugs)} noticed")
    return 0 if num_noticed == len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
