"""Environments as their makers' own code runs them, without ours around it: what `benchmarks.envs` compares with.

Each generator yields attempts: the seconds that making and resetting took, what is possible, and a step. They say what
their makers' observations say (numbers, images, texts), which is not always what ours say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from groupwise.envs import Alfworld
from groupwise.envs.alfworld_games import FILE, games_folder

Step = Callable[[str], tuple[tuple[str, ...], bool]]
"""Sends an action; what is possible then, and whether the attempt has ended."""
Attempts = Iterator[tuple[float, tuple[str, ...], Step]]
"""Attempts, each with the seconds that opening took and what is possible at first."""


def alfworld(part: Alfworld) -> Attempts:
    """TextWorld with ALFWorld's wrappers, as `AlfredTWEnv` starts its games."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos

    wanted = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    for task in part.panel("train"):
        begin = time.perf_counter()
        file = games_folder(part.path) / str(task.payload["game"]) / FILE
        game = textworld.start(str(file), wanted, wrappers=[AlfredDemangler(shuffle=False), AlfredInfos])
        state = game.reset()
        took = time.perf_counter() - begin

        def step(action: str, game: Any = game) -> tuple[tuple[str, ...], bool]:
            state, _, ended = game.step(action)
            return tuple(state["admissible_commands"]), ended

        yield took, tuple(state["admissible_commands"]), step


def gymnasium(id: str, **kwargs: Any) -> Attempts:
    """A registered environment of Gymnasium, with the wrappers that `make` puts around it."""
    import gymnasium as package

    def begin(seed: int) -> Any:
        game = package.make(id, **kwargs)
        game.reset(seed=seed)
        return game

    return _gym(begin)


def babyai(level: str) -> Attempts:
    """A level of minigrid, which shows numbers of a 7 x 7 view."""
    import minigrid  # noqa: F401  # it registers its levels

    return gymnasium(level)


def sokoban(size: int, num_boxes: int) -> Attempts:
    """gym-sokoban's own environment, which draws a room at each reset and an image at each step."""
    with redirect_stderr(StringIO()), redirect_stdout(StringIO()):  # gym says at length that it is old
        from gym_sokoban.envs.sokoban_env import SokobanEnv

    def begin(seed: int) -> Any:
        with redirect_stdout(StringIO()):
            game = SokobanEnv(dim_room=(size, size), num_boxes=num_boxes, max_steps=50)
        game.seed(seed)
        return game

    return _gym(begin)


def textarena(id: str, actions: tuple[str, ...]) -> Attempts:
    """A game of textarena for one player, with the wrappers that `make` puts around it."""
    import textarena as package

    def begin(seed: int) -> Any:
        game = package.make(id)
        game.reset(num_players=1, seed=seed)
        return game

    def send(game: Any, action: str) -> bool:
        game.get_observation()
        return bool(game.step(f"[{action}]")[0])

    return _text(begin, send, actions)


def gem(id: str, actions: tuple[str, ...], **kwargs: Any) -> Attempts:
    """A game of GEM."""
    import gem as package

    def begin(seed: int) -> Any:
        game = package.make(id, **kwargs)
        game.reset(seed=seed)
        return game

    def send(game: Any, action: str) -> bool:
        _, _, terminated, truncated, _ = game.step(f"\\boxed{{{action}}}")
        return bool(terminated or truncated)

    return _text(begin, send, actions)


def _gym(begin: Callable[[int], Any]) -> Attempts:
    seed = 0
    while True:
        start = time.perf_counter()
        game = begin(seed)
        took, seed = time.perf_counter() - start, seed + 1
        actions = tuple(str(number) for number in range(int(game.action_space.n)))

        def step(action: str, game: Any = game, actions: tuple[str, ...] = actions) -> tuple[tuple[str, ...], bool]:
            told = game.step(int(action))
            return actions, any(bool(each) for each in told[2:-1])  # one flag that it ended, or two

        yield took, actions, step


def _text(begin: Callable[[int], Any], send: Callable[[Any, str], bool], actions: tuple[str, ...]) -> Attempts:
    seed = 0
    while True:
        start = time.perf_counter()
        game = begin(seed)
        took, seed = time.perf_counter() - start, seed + 1
        yield took, actions, lambda action, game=game: (actions, send(game, action))  # type: ignore[misc]
