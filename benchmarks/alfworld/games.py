"""The games as one small archive, for machines that have none: packed once, unpacked where they are played."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from groupwise.envs.alfworld.environment import FILE, FOLDERS, find_games_folder
from groupwise.system.errors import ConfigError


def pack_games(source: Path, archive: Path) -> int:
    """Write the game files of the three task sets, and nothing else, into a .tar.xz; how many there are."""
    folder, num_games = find_games_folder(str(source)), 0
    with tarfile.open(archive, "w:xz") as packed:
        for split in FOLDERS.values():
            for file in sorted((folder / split).glob(f"*/*/{FILE}")):
                packed.add(file, arcname=str(file.relative_to(folder)))
                num_games += 1
    return num_games


def unpack_games(given: Path) -> Path:
    """The folder of the games: the given one, or a given archive's content, unpacked once into the temporary folder."""
    if given.is_dir():
        return given
    if not given.is_file():
        raise ConfigError(f"--games: there is no {str(given)!r}; give the folder that `alfworld-download` filled")
    name = given.name.removesuffix(".tar.xz")
    target = Path(tempfile.gettempdir()) / f"groupwise-{name}-{given.stat().st_size}"
    if not target.is_dir():
        with tempfile.TemporaryDirectory(dir=target.parent) as draft, tarfile.open(given) as archive:
            wanted = [one for one in archive if one.name.endswith(FILE) and "valid_train/" not in one.name]
            archive.extractall(Path(draft) / "games", members=wanted, filter="data")
            (Path(draft) / "games").rename(target)
    return target
