"""Environments run by their original packages, without our code: the comparison of `benchmarks.envs`.

Each generator yields rollouts: the seconds of creating and resetting, the possible actions, and a step. Observations
are those of the original package (numbers, images, texts), not always the same as ours. Games that read a file or a
seed use those of our tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import cycle
from typing import Any

from groupwise.data.records import Task
from groupwise.envs import Alfworld, Openenv, Scienceworld, TextworldExpress
from groupwise.envs.alfworld.environment import FILE, find_games_folder
from groupwise.envs.bfcl.environment import END_OF_TURN
from groupwise.envs.bfcl.services import read_conversations
from groupwise.envs.textworld import SHOWN, Textworld

Step = Callable[[str], tuple[tuple[str, ...], bool]]
"""Sends an action; what is possible then, and whether the rollout has ended."""
Rollouts = Iterator[tuple[float, tuple[str, ...], Step]]
"""Rollouts, each with the seconds that opening took and what is possible at first."""


def alfworld(part: Alfworld) -> Rollouts:
    """TextWorld with ALFWorld's wrappers, as `AlfredTWEnv` starts its games."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos

    wanted = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    for task in part.task_set("train"):
        begin = time.perf_counter()
        file = find_games_folder(part.path) / str(task.payload["game"]) / FILE
        game = textworld.start(str(file), wanted, wrappers=[AlfredDemangler(shuffle=False), AlfredInfos])
        state = game.reset()
        took = time.perf_counter() - begin

        def step(action: str, game: Any = game) -> tuple[tuple[str, ...], bool]:
            state, _, ended = game.step(action)
            return tuple(state["admissible_commands"]), ended

        yield took, tuple(state["admissible_commands"]), step


def textworld(part: Textworld, tasks: Sequence[Task]) -> Rollouts:
    """`textworld.gym` with a pool of our game files and our requested infos; each reset reads the next file."""
    import textworld.gym as gym
    from textworld import EnvInfos

    wanted = EnvInfos(**dict.fromkeys(SHOWN, True))
    files = [str(part.game_file(task)) for task in tasks]
    game = gym.make(gym.register_games(files, wanted, max_episode_steps=part.max_steps))
    while True:
        begin = time.perf_counter()
        _, info = game.reset()
        took = time.perf_counter() - begin

        def step(action: str) -> tuple[tuple[str, ...], bool]:
            _, _, ended, info = game.step(action)
            return tuple(info["admissible_commands"]), ended

        yield took, tuple(info["admissible_commands"]), step


def textworld_express(part: TextworldExpress, tasks: Sequence[Task]) -> Rollouts:
    """TextWorldExpress's own class: one simulator, loaded once and reset per rollout, without gold paths.

    As in its own speed test. Ours loads a simulator per rollout.
    """
    from textworld_express import TextWorldExpressEnv

    game = TextWorldExpressEnv(envStepLimit=part.max_steps)
    game.load(part.game, ",".join(f"{name}={value}" for name, value in part.params.items()))

    def begin(task: Task) -> list[str]:
        return list(game.reset(seed=task.seed, gameFold=task.payload["fold"])[1]["validActions"])

    def send(action: str) -> tuple[list[str], bool]:
        _, _, ended, reply = game.step(action)
        return reply["validActions"], ended

    return _one_simulator(tasks, begin, send)


def scienceworld(part: Scienceworld, tasks: Sequence[Task]) -> Rollouts:
    """ScienceWorld's own class: one simulator, loaded and reset per rollout; each step lists the valid actions."""
    from scienceworld import ScienceWorldEnv

    game = ScienceWorldEnv(envStepLimit=part.max_steps)

    def begin(task: Task) -> list[str]:
        game.load(task.payload["task"], task.payload["variation"], part.simplifications)
        return list(game.reset()[1]["valid"])

    def send(action: str) -> tuple[list[str], bool]:
        _, _, ended, reply = game.step(action)
        return reply["valid"], ended

    return _one_simulator(tasks, begin, send)


def bfcl(tasks: Sequence[Task], actions: tuple[str, ...]) -> Rollouts:
    """bfcl-eval's executor, called as in its runner: before the first turn, and for the response of each step.

    It does not decode responses or check turns; bfcl's handlers and evaluator do. The executor finds the services of a
    rollout by the model's name, so each rollout has its own name.
    """
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call as execute

    for number, task in enumerate(cycle(tasks)):
        talk = read_conversations(task.payload["category"])[task.payload["task"]]
        where = (talk.scenario, list(talk.classes), f"model_{number}", talk.id, talk.is_long)
        start = time.perf_counter()
        execute([], *where)
        took, left = time.perf_counter() - start, len(talk.requests)

        def step(action: str, where: tuple[Any, ...] = where) -> tuple[tuple[str, ...], bool]:
            nonlocal left
            if action == END_OF_TURN:
                left -= 1
            else:
                execute([action], *where)
            return actions, left == 0

        yield took, actions, step


def openenv(part: Openenv, tasks: Sequence[Task]) -> Rollouts:
    """OpenEnv's own client in one session that each rollout resets; ours opens a session per rollout."""
    from openenv.core import GenericEnvClient

    game = GenericEnvClient(base_url=part.url).sync()

    def begin(task: Task) -> list[str]:
        return list(game.reset(seed=task.seed).observation[part.admissible_field])

    def send(action: str) -> tuple[list[str], bool]:
        reply = game.step({part.action_field: action})
        return reply.observation[part.admissible_field], bool(reply.done)

    return _one_simulator(tasks, begin, send)


def gymnasium(id: str, **kwargs: Any) -> Rollouts:
    """A registered environment of Gymnasium, with the wrappers that `make` puts around it."""
    import gymnasium as package

    def begin(seed: int) -> Any:
        game = package.make(id, **kwargs)
        game.reset(seed=seed)
        return game

    return _gym(begin)


def babyai(level: str) -> Rollouts:
    """A level of minigrid; observations are numbers of a 7 x 7 view."""
    import minigrid  # noqa: F401  # it registers its levels

    return gymnasium(level)


def sokoban(size: int, num_boxes: int) -> Rollouts:
    """gym-sokoban's own environment, which draws a room at each reset and an image at each step."""
    with redirect_stderr(StringIO()), redirect_stdout(StringIO()):  # gym says at length that it is old
        from gym_sokoban.envs.sokoban_env import SokobanEnv

    def begin(seed: int) -> Any:
        with redirect_stdout(StringIO()):
            game = SokobanEnv(dim_room=(size, size), num_boxes=num_boxes, max_steps=50)
        game.seed(seed)
        return game

    return _gym(begin)


def textarena(id: str, actions: tuple[str, ...]) -> Rollouts:
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


def gem(id: str, actions: tuple[str, ...], **kwargs: Any) -> Rollouts:
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


def _one_simulator(
    tasks: Sequence[Task], begin: Callable[[Task], list[str]], send: Callable[[str], tuple[list[str], bool]]
) -> Rollouts:
    """Rollouts one after another in a simulator in another process, which was started before the clock."""
    for task in cycle(tasks):
        start = time.perf_counter()
        listed = begin(task)
        took = time.perf_counter() - start

        def step(action: str) -> tuple[tuple[str, ...], bool]:
            listed, ended = send(action)
            return tuple(listed), ended

        yield took, tuple(listed), step


def _gym(begin: Callable[[int], Any]) -> Rollouts:
    seed = 0
    while True:
        start = time.perf_counter()
        game = begin(seed)
        took, seed = time.perf_counter() - start, seed + 1
        actions = tuple(str(number) for number in range(int(game.action_space.n)))

        def step(action: str, game: Any = game, actions: tuple[str, ...] = actions) -> tuple[tuple[str, ...], bool]:
            reply = game.step(int(action))
            return actions, any(bool(each) for each in reply[2:-1])  # one flag that it ended, or two

        yield took, actions, step


def _text(begin: Callable[[int], Any], send: Callable[[Any, str], bool], actions: tuple[str, ...]) -> Rollouts:
    seed = 0
    while True:
        start = time.perf_counter()
        game = begin(seed)
        took, seed = time.perf_counter() - start, seed + 1
        yield took, actions, lambda action, game=game: (actions, send(game, action))  # type: ignore[misc]
