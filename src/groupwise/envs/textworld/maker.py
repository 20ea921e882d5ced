"""Makes TextWorld games, each in an interpreter of its own, and keeps them on disk.

TextWorld's cooking games depend on Python's hash seed: the same seed makes other games in the next process. So a game
is made in a fresh interpreter whose hash seed is fixed, and a task is the same game everywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from groupwise.core.errors import EnvironmentFault

FILE = "game.z8"
MAKE = "import sys; sys.path[:] = {path!r}; from groupwise.envs.textworld.maker import make_game; make_game({order!r})"
SECONDS = 300.0
"""How long the making of a game may take; seconds are usual."""


def find_or_make_game(folder: Path, challenge: str, settings: Mapping[str, Any], seed: int, version: str) -> Path:
    """The file of a game, which is made where it is not there yet."""
    order = {"challenge": challenge, "settings": dict(settings), "seed": seed, "version": version}
    name = sha256(json.dumps(order, sort_keys=True).encode()).hexdigest()[:16]
    kept = folder / f"{challenge}-{seed}-{name}"
    if not (kept / FILE).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as draft:
            _make_apart({**order, "path": str(Path(draft) / "game" / FILE)})
            with suppress(OSError):  # another process has made it in the meantime
                os.rename(Path(draft) / "game", kept)
    return kept / FILE


def _make_apart(order: Mapping[str, Any]) -> None:
    code = MAKE.format(path=[str(entry) for entry in sys.path], order=json.dumps(order))
    try:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env=os.environ | {"PYTHONHASHSEED": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
    except subprocess.CalledProcessError as error:
        last_line = (str(error.stderr).strip().splitlines() or ["it said nothing"])[-1]
        raise EnvironmentFault(f"TextWorld could not make the game {order['challenge']!r}: {last_line}") from None
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(
            f"TextWorld did not make the game {order['challenge']!r} within {SECONDS:g} seconds; ask for a smaller one"
        ) from None


def make_game(order: str) -> None:
    """Make a game as ordered; runs in the interpreter that is started for it."""
    from textworld.challenges import CHALLENGES
    from textworld.generator import compile_game
    from textworld.generator.game import GameOptions

    asked = json.loads(order)
    options = GameOptions()
    options.seeds = asked["seed"]
    options.path = asked["path"]
    options.grammar.only_last_action = not asked["settings"].pop("tell_way")
    _, build, _ = CHALLENGES[f"tw-{asked['challenge']}"]
    compile_game(build(asked["settings"], options), options)
