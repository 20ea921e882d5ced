"""The common part of the adapters of game packages: seeded games with text in and text out.

Such packages draw from the process-wide generators, list no actions and have no splits. Here each game has its own
generator. Its possible actions are those of a given list that a copy of it accepts. The content of an instance decides
its split, so an instance that two seeds make is in one split only.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from io import StringIO
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any, ClassVar, Protocol, Self

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.draws import PrivateRandom, undo_draws
from groupwise.envs.kit.packages import package_version
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import (
    Proposal,
    TaskSets,
    TaskSetSizes,
    build_task_sets,
    check_env,
    choose_split,
    task_set_sizes_of,
)
from groupwise.envs.kit.words import vocabulary_of
from groupwise.parts.part import Part
from groupwise.system.errors import RecordError

BEGINNING = "The game begins."
"""The first text of a game that shows nothing."""
MAX_NUMBER = 100
"""The largest number in the vocabulary; each is a word that a small model must learn."""

MAX_ACTION_CHARACTERS = 4_000
"""Characters of an action that a game gets; longer ones can be slow or fail in its patterns."""
MAX_KEPT_BEGINNINGS = 64
"""Initial states to cache, so that the rollouts of a group start from a copy."""


class PackageGames(Part):
    """The fields that all adapters of game packages have."""

    id: str
    """Name of the game in the package's registry."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Options of the game, such as its size."""
    actions: tuple[str, ...] = ()
    """Actions to list if the game accepts them; empty = any text. Each check costs a copy of the game."""
    success_reward: float = 1.0
    """The smallest reward at the end that is a success."""
    seeds_differ: bool = False
    """Whether each seed is its own instance: for games that draw content later, such as Minesweeper its mines."""
    words: tuple[str, ...] = ()
    """Words of its texts that are not in its files, such as "5x5" or numbers above 100; for a new tokenizer."""
    about: str = "Play the game."
    """The instruction: one line that tells the agent what to do."""
    num_train: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Tasks in the train set, if there are so many instances."""
    num_validation: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Tasks in the validation set."""
    num_test: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Tasks in the test set."""
    max_steps: Annotated[int, Field(ge=1)] = 50
    """Steps before a rollout is truncated."""

    env: ClassVar[str]
    """The environment's kind."""
    distribution: ClassVar[str]
    """The package that has the games; its version is part of the tasks' identity."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        options = json.dumps(self.kwargs, sort_keys=True)
        return choose_split(
            _build_task_sets(type(self), self.id, options, self.seeds_differ, task_set_sizes_of(self)), split
        )

    def open(self, task: Task) -> GameEnvironment:
        check_env(task, self.env)
        key = type(self), self.model_dump_json(), task.id
        beginning = _beginnings.pop(key, None) or GameEnvironment(task, self)
        _beginnings[key] = beginning
        if len(_beginnings) > MAX_KEPT_BEGINNINGS:
            _beginnings.popitem(last=False)
        return beginning.fork()

    def vocabulary(self) -> tuple[str, ...]:
        said = collect_words_in_files(*self.find_files())
        return vocabulary_of((self.instruction(), BEGINNING, *self.actions, *self.words, *said))

    def instruction(self) -> str:
        return self.about

    def begin(self, id: str, kwargs: Mapping[str, Any], seed: int) -> PackageGame:
        """Begin a game of the package."""
        raise NotImplementedError

    def find_files(self) -> list[Path]:
        """The files with all texts of the game."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class GameReply:
    """What a game shows after an action, or at its beginning."""

    text: str
    key: str
    reward: float = 0.0
    accepted: bool = True
    """Whether the game accepted the action."""
    success: bool | None = None
    """Whether the game ended with success; None = it continues."""


class PackageGame(Protocol):
    """A game of a package that has begun."""

    inner: Any
    """The package's own game. Other attributes are replaced and never changed, so copies share them."""
    goal: str
    """Its rules, which do not change."""
    first: GameReply
    """The reply before any action."""
    instance: str
    """The digest of the instance, with its hidden state."""

    def play(self, action: str) -> GameReply:
        """Take an action."""


class GameEnvironment(SteppedEnvironment):
    """One rollout of a game of a package."""

    def __init__(self, task: Task, part: PackageGames) -> None:
        super().__init__(task, part.max_steps)
        self._actions, self._random = part.actions, PrivateRandom(task.seed)
        with _lend_random(self._random):
            self._game = part.begin(task.payload["id"], task.payload["kwargs"], task.seed)
            if self._game.instance != task.payload["instance"]:
                raise RecordError(
                    f"task {task.id}: its seed gives another game than in the task set. Use the package and Python "
                    "version that made the task set, and a game that does not depend on the order of a set"
                )
            self._progress.observation = self._observe(self._game.first)

    def act(self, action: str) -> Outcome:
        self._progress.step()
        with _lend_random(self._random):
            reply = self._game.play(action[:MAX_ACTION_CHARACTERS])
            seen = self._observe(reply)
        return self._progress.outcome(seen, success=reply.success, reward=reply.reward, accepted=reply.accepted)

    def fork(self) -> Self:
        twin = super().fork()
        twin._random, twin._game = self._random.fork(), _make_copier(self._game)()
        return twin

    def _observe(self, reply: GameReply) -> Observation:
        admissible = self._actions or None
        if self._actions and reply.success is None:  # those that a copy of the game accepts now
            copy_game = _make_copier(self._game)
            with undo_draws():
                admissible = tuple(action for action in self._actions if copy_game().play(action).accepted)
        return Observation(text=reply.text, state_key=reply.key, admissible=admissible, goal=self._game.goal)


_beginnings: OrderedDict[tuple[type, str, str], GameEnvironment] = OrderedDict()
"""Cached initial states; the latest last."""


def _make_copier(game: PackageGame) -> Callable[[], PackageGame]:
    """A function that makes independent copies of a game.

    The package's game is pickled once and unpickled for each copy, many times faster than a deep copy. If it cannot be
    pickled, it is copied deeply.
    """
    try:
        inner = partial(pickle.loads, pickle.dumps(game.inner, pickle.HIGHEST_PROTOCOL))
    except Exception:  # objects that cannot be pickled raise different errors
        inner = partial(copy.deepcopy, game.inner)

    def copy_game() -> PackageGame:
        twin = object.__new__(type(game))
        vars(twin).update(vars(game), inner=inner())
        return twin

    return copy_game


@lru_cache(8)
def _build_task_sets(
    games: type[PackageGames], id: str, options: str, seeds_differ: bool, sizes: TaskSetSizes
) -> TaskSets:
    """The task sets of a game: its instances by the seeds 0, 1, 2, ..., each in the split of its content."""
    kwargs = json.loads(options)
    part = games(id=id, kwargs=kwargs, seeds_differ=seeds_differ)
    part.find_files()  # raises if the package is missing
    payload = {"id": id, "kwargs": kwargs, "version": package_version(games.env, games.distribution)}

    def propose(seed: int) -> Proposal:
        with _lend_random(PrivateRandom(seed)):
            instance = part.begin(id, kwargs, seed).instance
        return Proposal(payload={**payload, "instance": instance}, seed=seed, tags=(id,))

    return build_task_sets(games.env, propose, sizes=sizes._asdict())


def summarise_error(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" *")]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _lend_random(chances: PrivateRandom) -> Iterator[None]:
    with chances.in_place(), redirect_stdout(StringIO()):
        yield


def digest_instance(*parts: Any) -> str:
    return hashlib.sha256(json.dumps([_to_json(part) for part in parts]).encode()).hexdigest()[:16]


def _to_json(value: Any) -> Any:
    """A value as JSON; sets are sorted, objects become their class and fields."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return sorted(([json.dumps(_to_json(key)), _to_json(entry)] for key, entry in value.items()), key=json.dumps)
    if isinstance(value, set | frozenset):
        return sorted((_to_json(entry) for entry in value), key=json.dumps)
    if isinstance(value, Sequence):
        return [_to_json(entry) for entry in value]
    if hasattr(value, "tolist"):  # numpy's
        return _to_json(value.tolist())
    return [type(value).__name__, _to_json(getattr(value, "__dict__", {}))]


@cache
def collect_words_in_files(*places: Path) -> tuple[str, ...]:
    """Every word in the texts of source files or folders: all that a game can say, and more."""
    files = [file for place in places for file in (sorted(place.iterdir()) if place.is_dir() else [place])]
    texts = [text for file in files for text in _read_texts(file)]
    numbers = (str(number) for number in range(MAX_NUMBER + 1))
    return vocabulary_of((*texts, *numbers, " ".join(ascii_lowercase)))


def _read_texts(file: Path) -> Iterator[str]:
    """The texts within a Python or JSON file."""
    if file.suffix == ".py":
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    elif file.suffix == ".json":
        yield json.dumps(json.loads(file.read_text(encoding="utf-8")), ensure_ascii=False).replace("\\n", " ")
