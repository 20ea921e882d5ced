"""ALFWorld's real games for tests: all of them from ALFWORLD_DATA or an archive beside the checkout, else a few.

The few are 36 of the official files as `alfworld-download` brings them (ALFWorld and ALFRED, MIT licence): of each
split and task type the two smallest, in tests/data/alfworld_games.tar.xz.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

ALL = Path(__file__).parents[4] / "shared" / "data" / "alfworld" / "json_2.1.1.tar.xz"
FEW = Path(__file__).parents[2] / "data" / "alfworld_games.tar.xz"
REASON = "not all of ALFWorld's games are here: set ALFWORLD_DATA to the folder that `alfworld-download` filled"
EACH = 60
"""Of the training games, one in so many is unpacked: they are many, and tests play few."""


def all_games(into: Path, *, one_in: int = EACH) -> Path:
    """A folder with all games of valid_seen and valid_unseen, and some or all of train; a skip where they are not."""
    if os.environ.get("ALFWORLD_DATA"):
        return Path(os.environ["ALFWORLD_DATA"])
    if not ALL.is_file():
        pytest.skip(REASON)
    return _unpack(ALL, into, one_in=one_in)


def games(into: Path) -> Path:
    """A folder with all games of valid_seen and valid_unseen and some of train, or with a few of each."""
    return all_games(into) if os.environ.get("ALFWORLD_DATA") or ALL.is_file() else few_games(into)


def few_games(into: Path) -> Path:
    """A folder with two games of each split and task type."""
    return _unpack(FEW, into, one_in=1)


def _unpack(archive: Path, into: Path, *, one_in: int) -> Path:
    number = 0
    with tarfile.open(archive) as opened:
        for member in opened:
            _, _, rest = member.name.partition("/")
            if not rest.endswith("game.tw-pddl") or rest.startswith("valid_train/"):
                continue
            number += rest.startswith("train/")
            if not rest.startswith("train/") or number % one_in == 0:
                opened.extract(member, into, filter="data")
    return into
