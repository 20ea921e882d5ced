"""TextWorld's generated games as environments of ours: coin collector, treasure hunter, cooking."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.packages import package_version
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import check_env, check_split, list_seed_tasks
from groupwise.envs.kit.words import NOTHING_HAPPENS, vocabulary_of
from groupwise.parts.part import Part
from groupwise.parts.path_settings import PathText
from groupwise.system.errors import ConfigError, EnvironmentFault
from groupwise.system.json_text import digest_value

ENV = "textworld"
FOODS = {"train": "train", "validation": "valid", "test": "test"}
"""TextWorld's own name for each split of foods."""
MAX_TASKS = 1_000_000
INSTRUCTIONS = {
    "coin_collector": "Find the coin and take it, one command at a time.",
    "treasure_hunter": "Find what is asked for and take it, one command at a time.",
    "cooking": "Cook the meal of the cookbook and eat it, one command at a time.",
}
SHOWN = (
    *("admissible_commands", "policy_commands", "won", "lost", "objective", "max_score"),
    *("description", "inventory"),
)
"""Information to request beside the answer to a command."""
STATUS = re.compile(r">\s*-=[^=]*=-\s*\d+/\d+\s*$")
INFORM = (
    "You are carrying nothing. You are carrying: You take the from the. You take. You drop the on the ground. You put",
    "the on the. You pick up the from the ground. You open the, revealing a. You close the. You have to open it first.",
    "You unlock the with. You lock. You eat the. Not bad. Adding the meal to your inventory. Your score has just gone",
    "up by one two three points. fried grilled roasted sliced diced chopped burned raw uncut You You're eaten lost won",
    "it is locked closed open opened in inventory look examine take drop put insert into go open close lock unlock eat",
    "cook slice chop dice prepare meal with from on north south east west up down and an the of a is are there here",
    "Recipe #1 Before you start, gather all the following ingredients and follow the directions to prepare this tasty",
    "copy of cooking: a modern approach (3rd ed.) you open the copy and start reading: directions: gram an also on",
)
"""Words of the compiled games that are not in TextWorld's grammars."""


class Textworld(Part, slot="env"):
    """Generated TextWorld games (Côté et al. 2018, arXiv:1806.11532): find a coin, find a treasure, or cook a meal.

    A task is a seed. Its game is made when it is first opened, which takes seconds, and is kept on disk. The reward of
    a step is its points, as a fraction of all points. Success is a won game; a lost game (burnt food) is terminated
    too. A fork is TextWorld's own copy. The expert takes the first of TextWorld's policy commands.

    Choices: a command must be written exactly as listed. Others are not sent to the game, which would also understand
    `undo`, `restart` and `quit`. Texts are on one line, without the banner, the status line and the texts after the
    end. The `state_key` is the text of looking around and of the inventory. For cooking, the splits are TextWorld's
    own: test games use other foods.
    """

    game: Literal["coin_collector", "treasure_hunter", "cooking"] = "coin_collector"
    """The family of games."""
    level: Annotated[int, Field(ge=1, le=300)] = 5
    """Difficulty of coin collector (1 to 300: 5 = five rooms, 105 = ten, half of them dead ends) and treasure hunter
    (1 to 30)."""
    recipe: Annotated[int, Field(ge=1, le=5)] = 1
    """Ingredients of a meal."""
    take: Annotated[int, Field(ge=0, le=5)] = 1
    """Ingredients that must be found."""
    rooms: Literal[1, 6, 9, 12] = 1
    """Rooms of a cooking game."""
    skills: tuple[Literal["cook", "cut", "open", "drop"], ...] = ("cook",)
    """Skills for cooking: cook, cut, open doors and containers, drop things that are too many to carry."""
    tell_way: bool = False
    """Whether the goal describes the whole way, as TextWorld does by default, or only its end."""
    path: PathText = ""
    """Folder for generated games; empty = groupwise/textworld in the user's cache folder."""
    num_train: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 200
    """Tasks in the train set."""
    num_validation: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 20
    """Tasks in the validation set."""
    num_test: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 40
    """Tasks in the test set."""
    max_steps: Annotated[int, Field(ge=1)] = 50
    """Steps before a rollout is truncated."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Textworld:
        if self.game == "treasure_hunter" and self.level > 30:
            raise ValueError(f"level is {self.level}, but treasure hunter has 30 levels; choose 1 to 30")
        if self.game == "cooking" and self.take > self.recipe:
            raise ValueError(f"take is {self.take}, more than the {self.recipe} ingredients of the recipe; lower it")
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        check_split(split)
        settings: dict[str, Any] = {"level": self.level, "tell_way": self.tell_way}
        if self.game == "cooking":
            asked = {skill: skill in self.skills for skill in ("cook", "cut", "open", "drop")}
            recipe = {"recipe": self.recipe, "take": self.take, "go": self.rooms, "recipe_seed": 0}
            settings = {**asked, **recipe, "split": FOODS[split], "tell_way": self.tell_way}
        payload = {"game": self.game, "settings": settings, "version": _find_version()}
        return list_seed_tasks(ENV, self, split, payload, tags=(self.game,))

    def open(self, task: Task) -> TextworldEnvironment:
        check_env(task, ENV)
        made_with, installed = task.payload["version"], _find_version()
        if made_with != installed:
            raise ConfigError(
                f"task {task.id} is a game of TextWorld {made_with}, but {installed} is installed; "
                "install that version, or make the task set again"
            )
        return TextworldEnvironment(task, self, self.game_file(task))

    def game_file(self, task: Task) -> Path:
        payload = task.payload
        folder = Path(os.path.expandvars(self.path)) if self.path else _find_cache_folder()
        return find_or_make_game(folder, payload["game"], payload["settings"], task.seed, payload["version"])

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary_of((*INSTRUCTIONS.values(), NOTHING_HAPPENS, *INFORM, *_read_grammars(self.game)))

    def instruction(self) -> str:
        return INSTRUCTIONS[self.game]


class TextworldEnvironment(SteppedEnvironment):
    """One rollout of a generated game."""

    def __init__(self, task: Task, part: Textworld, file: Path) -> None:
        super().__init__(task, part.max_steps)
        textworld = _import_textworld()
        with _silence_warnings():
            self._world = textworld.start(str(file), textworld.EnvInfos(**dict.fromkeys(SHOWN, True)))
        self._world.seed(0)  # without it the interpreter's random numbers depend on the clock
        state = self._world.reset()
        self._score, self._max_score = 0.0, float(state["max_score"]) or 1.0
        self._plan: tuple[str, ...] = ()
        self._progress.observation = self._observe(state, state["description"])

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if action not in (self.observe().admissible or ()):
            return self._progress.outcome(replace(self.observe(), text=NOTHING_HAPPENS), accepted=False)
        state, score, _ = self._world.step(action)
        reward, self._score = (float(score) - self._score) / self._max_score, float(score)
        success = True if state["won"] else False if state["lost"] else None
        return self._progress.outcome(self._observe(state, state["feedback"]), success=success, reward=reward)

    def fork(self) -> Self:
        twin = super().fork()
        with _silence_warnings():
            twin._world = self._world.copy()
        return twin

    def expert(self) -> str | None:
        return None if self._progress.ended else next(iter(self._plan), None)

    def _observe(self, state: Any, text: str | None) -> Observation:
        self._plan = tuple(state["policy_commands"] or ())
        return Observation(
            text=_clean_text(text),
            state_key=f"{_clean_text(state['description'])} {_clean_text(state['inventory'])}",
            admissible=tuple(state["admissible_commands"]),
            goal=_clean_text(state["objective"]),
        )


def _clean_text(text: str | None) -> str:
    """A text on one line, without the status line, which counts steps, and what a game says after its end."""
    return " ".join(STATUS.sub("", text or "").partition("***")[0].split())


def _import_textworld() -> Any:
    _find_version()
    with _silence_warnings():
        return import_module("textworld")


@contextmanager
def _silence_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def _find_version() -> str:
    return package_version(ENV, "textworld")


@cache
def _read_grammars(game: str) -> tuple[str, ...]:
    """TextWorld's grammars: every name and sentence that its games are made from."""
    root = Path(_import_textworld().__file__).parent
    folders = (root / "generator" / "data", root / "challenges" / f"tw_{game}")
    files = [file for folder in folders for end in ("twg", "twl", "py") for file in sorted(folder.rglob(f"*.{end}"))]
    return tuple(file.read_text(encoding="utf-8") for file in files)


def _find_cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "groupwise" / "textworld"


# Generated games are kept on disk. TextWorld's cooking games depend on Python's hash seed. So each game is made in a
# new interpreter with a fixed hash seed, and a task is the same game everywhere.

FILE = "game.z8"
MAKE = "import sys; sys.path[:] = {path!r}; from groupwise.envs.textworld import make_game; make_game({order!r})"
SECONDS = 300.0
"""Time limit for making a game; a few seconds are usual."""


def find_or_make_game(folder: Path, challenge: str, settings: Mapping[str, Any], seed: int, version: str) -> Path:
    order = {"challenge": challenge, "settings": dict(settings), "seed": seed, "version": version}
    name = digest_value(order)[:16]
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
            f"TextWorld did not make the game {order['challenge']!r} within {SECONDS:g} seconds; choose a smaller game"
        ) from None


def make_game(order: str) -> None:
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
