"""ALFWorld's game files: where they are, which there are, and the panels they make."""

from __future__ import annotations

import hashlib
import os
from functools import cache, lru_cache
from pathlib import Path

from groupwise.core.errors import ConfigError, RecordError
from groupwise.core.records import Task
from groupwise.envs.alfworld.game_file import Game, read_game

ENV = "alfworld"
VARIABLE = "ALFWORLD_DATA"
FOLDERS = {"train": "train", "validation": "valid_seen", "test": "valid_unseen"}
"""ALFWorld's own name for each split."""
FILE = "game.tw-pddl"
UNSUPPORTED = ("movable", "Sliced")
"""Games whose folder has such a name are left out, as ALFWorld leaves them out."""
KEPT_GAMES = 512
"""Games that stay read: the attempts of a group, and of the next epoch, open them again."""
FOLDER_HINT = f"; set `path`, or {VARIABLE}, to the folder that `alfworld-download` filled"


def find_games_folder(path: str) -> Path:
    """The folder with ALFWorld's splits in it, from a field, or from the environment variable where that is empty."""
    wanted = path or os.environ.get(VARIABLE, "")
    if not wanted:
        raise ConfigError(f"alfworld: no folder of games is named{FOLDER_HINT}")
    root = Path(os.path.expandvars(wanted)).expanduser()
    for folder in (root, root / "json_2.1.1"):
        if any((folder / split).is_dir() for split in FOLDERS.values()):
            return folder
    trouble = "has none of the folders train, valid_seen, valid_unseen" if root.is_dir() else "does not exist"
    raise ConfigError(f"alfworld: the folder of games {str(root)!r} {trouble}{FOLDER_HINT}")


@cache
def build_panel(folder: Path, split: str, task_types: tuple[str, ...]) -> tuple[Task, ...]:
    """The games of a split, task types in turn, so that any beginning of it is balanced.

    A task's identity contains its folder and a digest of its file. Only the split that is asked for is read.
    """
    root = folder / FOLDERS[split]
    by_type: dict[str, list[Task]] = {name: [] for name in task_types}
    for file in sorted(root.glob(f"*/*/{FILE}")):
        name = file.relative_to(root).as_posix()
        task_type = name.partition("-")[0]
        if task_type in by_type and not any(word in name for word in UNSUPPORTED):
            content = file.read_bytes()
            if b'"solvable": false' not in content:
                by_type[task_type].append(_make_task(split, file.relative_to(folder).parent, content, task_type))
    longest = max(map(len, by_type.values()))
    tasks = tuple(tasks[i] for i in range(longest) for tasks in by_type.values() if i < len(tasks))
    if not tasks:
        raise ConfigError(f"alfworld: no games of {', '.join(task_types)} in {str(root)!r}{FOLDER_HINT}")
    return tasks


def _make_task(split: str, game: Path, content: bytes, task_type: str) -> Task:
    payload = {"game": game.as_posix(), "sha256": hashlib.sha256(content).hexdigest()}
    return Task.create(env=ENV, split=split, payload=payload, tags=(task_type,))


@lru_cache(KEPT_GAMES)
def open_game(folder: Path, name: str, sha256: str) -> Game:
    """Read a task's game, which must be the file that the task was made from."""
    file = folder / name / FILE
    try:
        content = file.read_bytes()
    except OSError as error:
        raise RecordError(f"{str(file)!r}: the task's game cannot be read ({error.strerror}){FOLDER_HINT}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise RecordError(f"{str(file)!r}: not the file that the task was made from; make the panel from these games")
    return read_game(content, repr(str(file)))
