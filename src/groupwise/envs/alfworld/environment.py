"""ALFWorld's text games: six types of household chores, 3,827 games, played from the official game files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice, permutations
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, get_args

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.alfworld.game import HELP, NOWHERE, TREATMENTS, Game, GameState, read_game
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import DISTINCT, check_env, check_split, take_in_turn
from groupwise.envs.kit.words import NOTHING_HAPPENS, vocabulary_of
from groupwise.parts.part import Part
from groupwise.parts.path_settings import PathText
from groupwise.system.errors import ConfigError, RecordError

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
MAX_NUMBER = 30
NAMES = (
    "alarmclock apple armchair baseballbat basketball bathtub bathtubbasin bed blinds book boots bowl box bread "
    "butterknife cabinet candle cart cd cellphone chair cloth coffeemachine coffeetable countertop creditcard cup "
    "curtains desk desklamp diningtable dishsponge drawer dresser egg floorlamp footstool fork fridge garbagecan "
    "glassbottle handtowel handtowelholder houseplant kettle keychain knife ladle laptop laundryhamper "
    "laundryhamperlid lettuce lightswitch microwave mirror mug newspaper ottoman painting pan papertowelroll pen "
    "pencil peppershaker pillow plate plunger poster pot potato remotecontrol safe saltshaker scrubbrush shelf "
    "showerdoor showerglass sidetable sink sinkbasin soapbar soapbottle sofa spatula spoon spraybottle statue "
    "stoveburner stoveknob teddybear television tennisracket tissuebox toaster toilet toiletpaper "
    "toiletpaperhanger tomato towel towelholder tvstand vase watch wateringcan window winebottle"
)
"""Kinds of receptacles and things in the released games."""
GOAL_WORDS = "a and at clean cool examine find heat hot in it look on put some the them two under with"
"""Other words of the tasks."""
SENTENCES = (
    "You are in the middle of a room. Looking quickly around you, you see a, and a. Your task is to:",
    "You arrive at. The is open. In it, you see nothing. The is closed. On the, you see. You open the. You close the.",
    "You pick up the from the. You move the to the. You turn on the. You sliced the with the. You clean heat cool",
    "using",
    "You are facing the. Next to it, you see nothing. You are carrying: a. You are not carrying anything.",
    "This is a normal. This is a hot and clean sliced cool cold. This is on. There's nothing special about.",
    "go to take from move to open close examine use heat with clean cool slice look inventory",
)
"""Every word of the sentences and commands, names aside."""


class Alfworld(Part, slot="env"):
    """ALFWorld's text games (Shridhar et al. 2021, arXiv:2010.03768), from the files that `alfworld-download` gets.

    The official splits are the task sets: train (3,553 games), valid_seen as validation (140), valid_unseen as test
    (134). A task's identity contains a digest of its game file. Success ends the rollout with `success_reward`, 10 as
    in the published methods; every other step gets 0. An impossible command is invalid and gets "Nothing happens."

    Choices: groupwise interprets the rules and sentences of the files itself. The texts are equal to the stock
    interpreter's, letter by letter, several hundred times faster. A fork is a copy. `help` works but is not listed, as
    in the published prompts. The expert follows the file's walkthrough; after another action it takes a shortest way.
    Some games leave no way (a roll of paper towels that was taken fits nowhere); then it has no action.

    `state_key` is by default what is visible: the receptacles here, whether they are open, their content, what is
    carried. `key = "observation"` is the last text of the game, as in GiGPO's release. Then different situations can
    have the same key: "Nothing happens." is one state everywhere.
    """

    path: PathText = ""
    """Folder of the games, the one with train, valid_seen and valid_unseen or its parent; empty = ALFWORLD_DATA."""
    task_types: Annotated[tuple[TaskType, ...], Field(min_length=1), DISTINCT] = get_args(TaskType)
    """The task types to use."""
    max_steps: Annotated[int, Field(ge=1)] = 50
    """Steps before a rollout is truncated; walkthroughs have 3 to 10."""
    success_reward: float = 10.0
    """Reward of the step that solves the task; every other step gets 0."""
    key: Literal["situation", "observation"] = "situation"
    """What makes two steps comparable."""
    goal_in_text: bool = False
    """Whether the first text is the whole introduction with the task; for prompts without the goal."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        check_split(split)
        return build_task_set(find_games_folder(self.path), split, self.task_types)

    def open(self, task: Task) -> AlfworldEnvironment:
        check_env(task, ENV)
        return AlfworldEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = map(str, range(1, MAX_NUMBER + 1))
        return vocabulary_of(
            (self.instruction(), WELCOME, HELP, NOTHING_HAPPENS, *SENTENCES, GOAL_WORDS, NAMES, *numbers)
        )

    def instruction(self) -> str:
        return "Do the task in the home, one command at a time."


class AlfworldEnvironment(SteppedEnvironment):
    """One rollout of a game."""

    def __init__(self, task: Task, part: Alfworld) -> None:
        super().__init__(task, part.max_steps)
        game = open_game(find_games_folder(part.path), task.payload["game"], task.payload["sha256"])
        self._part, self._state = part, GameState(game)
        self._followed: int | None = 0
        """Commands of the walkthrough that were carried out; None = the rollout left it."""
        introduction = self._state.introduce()
        self._progress.observation = self._observe(
            f"{WELCOME}\n\n{introduction}\n\nYour task is to: {game.task}" if part.goal_in_text else introduction
        )

    def act(self, action: str) -> Outcome:
        self._progress.step()
        text = action.strip()
        possible = self._possible.get(text)
        if possible is None:
            return self._progress.outcome(self._observe(NOTHING_HAPPENS), accepted=False)
        if self._followed is not None and not possible.changes_nothing:
            is_next = text == next(iter(self._state.game.walkthrough[self._followed :]), "")
            self._followed = self._followed + 1 if is_next else None
        seen = self._observe(self._state.carry_out(possible))
        if self._state.is_won():
            return self._progress.outcome(seen, success=True, reward=self._part.success_reward)
        return self._progress.outcome(seen)

    def fork(self) -> Self:
        twin = super().fork()
        twin._state = self._state.fork()
        return twin

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        walkthrough = self._state.game.walkthrough
        if self._followed is not None and self._followed < len(walkthrough):
            return walkthrough[self._followed]
        return next(iter(find_shortest_plan(self._state)), None)

    def _observe(self, text: str) -> Observation:
        state = self._state
        self._possible = state.list_commands()
        return Observation(
            text=text,
            state_key=state.make_key() if self._part.key == "situation" else text,
            admissible=tuple(command for command in self._possible if command != "help"),
            goal=state.game.task,
        )


# ALFWorld's game files: where they are, which there are, and the task sets they make.

ENV = "alfworld"
VARIABLE = "ALFWORLD_DATA"
FOLDERS = {"train": "train", "validation": "valid_seen", "test": "valid_unseen"}
"""ALFWorld's own name for each split."""
FILE = "game.tw-pddl"
UNSUPPORTED = ("movable", "Sliced")
"""Games whose folder has such a name are left out, as ALFWorld leaves them out."""
KEPT_GAMES = 512
"""Games to cache: the rollouts of a group, and of the next epoch, open them again."""
FOLDER_HINT = f"; set `path`, or {VARIABLE}, to the folder that `alfworld-download` filled"


def find_games_folder(path: str) -> Path:
    """The folder with ALFWorld's splits: `path`, or the environment variable if it is empty."""
    wanted = path or os.environ.get(VARIABLE, "")
    if not wanted:
        raise ConfigError(f"alfworld: no folder of games is set{FOLDER_HINT}")
    root = Path(os.path.expandvars(wanted)).expanduser()
    for folder in (root, root / "json_2.1.1"):
        if any((folder / split).is_dir() for split in FOLDERS.values()):
            return folder
    trouble = "has none of the folders train, valid_seen, valid_unseen" if root.is_dir() else "does not exist"
    raise ConfigError(f"alfworld: the folder of games {str(root)!r} {trouble}{FOLDER_HINT}")


@cache
def build_task_set(folder: Path, split: str, task_types: tuple[str, ...]) -> tuple[Task, ...]:
    """The games of a split, task types in turn, so its first tasks are balanced. Only this split is read."""
    root = folder / FOLDERS[split]
    by_type: dict[str, list[Task]] = {name: [] for name in task_types}
    for file in sorted(root.glob(f"*/*/{FILE}")):
        name = file.relative_to(root).as_posix()
        task_type = name.partition("-")[0]
        if task_type in by_type and not any(word in name for word in UNSUPPORTED):
            content = file.read_bytes()
            if b'"solvable": false' not in content:
                game = file.relative_to(folder).parent.as_posix()
                payload = {"game": game, "sha256": hashlib.sha256(content).hexdigest()}
                by_type[task_type].append(Task.create(env=ENV, split=split, payload=payload, tags=(task_type,)))
    tasks = take_in_turn(list(by_type.values()))
    if not tasks:
        raise ConfigError(f"alfworld: no games of {', '.join(task_types)} in {str(root)!r}{FOLDER_HINT}")
    return tasks


@lru_cache(KEPT_GAMES)
def open_game(folder: Path, name: str, sha256: str) -> Game:
    file = folder / name / FILE
    try:
        content = file.read_bytes()
    except OSError as error:
        raise RecordError(f"{str(file)!r}: the task's game cannot be read ({error.strerror}){FOLDER_HINT}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise RecordError(
            f"{str(file)!r}: not the file that the task was made from; make the task set again from these games"
        )
    return read_game(content, repr(str(file)))


# The expert for rollouts that left the walkthrough of the game file.
#
# A plan fetches the things that the task needs, treats them, and brings them to their target or to a lamp. The shortest
# plan wins. Like the walkthrough, the expert knows where everything is.

MAX_PLANS = 400
"""Plans to compare at most; homes with many drawers and many equal things have more."""


class _Errand(NamedTuple):
    """Things to fetch, and the receptacle for them; with a lamp, the receptacle of the lamp."""

    things: tuple[int, ...]
    place: int
    lamp: int = NOWHERE


class _NoWayError(Exception):
    """The plan is impossible: the thing in hand fits nowhere, or cannot be treated."""


def find_shortest_plan(state: GameState) -> list[str]:
    """The commands of a short way to solve the task from here; empty if there is none."""
    plans = (_make_plan(state, errand) for errand in islice(_list_errands(state), MAX_PLANS))
    return min((plan for plan in plans if plan is not None), key=len, default=[])


def _make_plan(state: GameState, errand: _Errand) -> list[str] | None:
    walk = _Walk(state)
    try:
        for thing in errand.things:
            walk.fetch(thing)
            walk.treat(state.game.goal.treatment)
            if errand.lamp == NOWHERE:
                walk.put(errand.place)
        if errand.lamp != NOWHERE:
            walk.use(errand.lamp, errand.place)
    except _NoWayError:
        return None
    return walk.commands


def _list_errands(state: GameState) -> Iterator[_Errand]:
    game, goal = state.game, state.game.goal
    # Things of the wanted kind that can be taken; the carried one first.
    there = {thing for thing, _ in state.lies_in if thing in game.able["pickupable"]} | {state.held}
    able = game.able[TREATMENTS[goal.treatment][0]] if goal.treatment else there
    wanted = sorted(t for t in there & able if t != NOWHERE and game.thing_kinds[t] == goal.thing)
    things = sorted(wanted, key=lambda thing: thing != state.held)
    if goal.is_seen_by_lamp:
        lamps = [(lamp, place) for lamp, place in sorted(state.lies_in) if game.thing_kinds[lamp] == goal.target]
        yield from (_Errand((thing,), place, lamp) for lamp, place in lamps for thing in things)
        return
    # For each target, each choice and order of the things that it lacks.
    for target in (place for place, kind in enumerate(game.place_kinds) if kind == goal.target):
        lie_there = set(state.list_things_in(target))
        done = [t for t in things if t in lie_there and state.is_treated(t, goal.treatment)]
        lacking = [thing for thing in things if thing not in done]
        yield from (_Errand(order, target) for order in permutations(lacking, goal.num_needed - len(done)))


class _Walk:
    """A plan in the making: the commands so far, carried out in a copy of the situation."""

    def __init__(self, state: GameState) -> None:
        self._now, self._game = state.fork(), state.game
        self.commands: list[str] = []

    def go(self, place: int) -> None:
        if self._now.spot != self._game.spot_of[place]:
            self._do(f"go to {self._game.places[place]}")

    def reach(self, place: int) -> None:
        self.go(place)
        if not self._now.is_open(place):
            self._do(f"open {self._game.places[place]}")

    def fetch(self, thing: int) -> None:
        """Take a thing; first put down the carried one."""
        if self._now.held == thing:
            return
        if self._now.held != NOWHERE:
            kind = self._game.thing_kinds[self._now.held]
            fits = [(kind_of_place, kind) in self._game.can_contain for kind_of_place in self._game.place_kinds]
            self.put(self._find_nearest(place for place, is_fit in enumerate(fits) if is_fit))
        place = self._find_nearest(place for other, place in self._now.lies_in if other == thing)
        self.reach(place)
        self._do(f"take {self._game.things[thing]} from {self._game.places[place]}")

    def put(self, place: int) -> None:
        self.reach(place)
        self._do(f"move {self._game.things[self._now.held]} to {self._game.places[place]}")

    def treat(self, treatment: str) -> None:
        if self._now.is_treated(self._now.held, treatment):
            return
        _, kinds = TREATMENTS[treatment]
        place = self._find_nearest(place for place, kind in enumerate(self._game.place_kinds) if kind in kinds)
        self.go(place)
        self._do(f"{treatment} {self._game.things[self._now.held]} with {self._game.places[place]}")

    def use(self, lamp: int, place: int) -> None:
        self.go(place)
        if lamp not in self._now.used:
            self._do(f"use {self._game.things[lamp]}")

    def _do(self, text: str) -> None:
        action = self._now.list_commands().get(text)
        if action is None:
            raise _NoWayError
        self.commands.append(text)
        self._now.carry_out(action)

    def _find_nearest(self, places: Iterable[int]) -> int:
        """The receptacle that can be used after the fewest commands; the first of several."""

        def count_commands(place: int) -> tuple[int, int]:
            return (self._game.spot_of[place] != self._now.spot) + (not self._now.is_open(place)), place

        nearest = min(places, key=count_commands, default=NOWHERE)
        if nearest == NOWHERE:
            raise _NoWayError
        return nearest
