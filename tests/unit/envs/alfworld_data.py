"""ALFWorld's real games for tests: from ALFWORLD_DATA or an archive beside the checkout; without either, a skip."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parents[4] / "shared" / "data" / "alfworld" / "json_2.1.1.tar.xz"
REASON = "ALFWorld's games are not here: set ALFWORLD_DATA to the folder that `alfworld-download` filled"
EACH = 60
"""Of the training games, one in so many is unpacked: they are many, and tests play few."""


def games(into: Path, *, one_in: int = EACH) -> Path:
    """A folder with all games of valid_seen and valid_unseen, and some or all of train."""
    if os.environ.get("ALFWORLD_DATA"):
        return Path(os.environ["ALFWORLD_DATA"])
    if not ARCHIVE.is_file():
        pytest.skip(REASON)
    number = 0
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            _, _, rest = member.name.partition("/")
            if not rest.endswith("game.tw-pddl") or rest.startswith("valid_train/"):
                continue
            number += rest.startswith("train/")
            if not rest.startswith("train/") or number % one_in == 0:
                archive.extract(member, into, filter="data")
    return into
