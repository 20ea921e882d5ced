"""BabyAI's levels through MiniGrid, in words: missions in rooms with doors, keys, balls and boxes."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache
from importlib import import_module
from io import StringIO
from typing import Annotated, Any

from pydantic import Field

from groupwise.core.errors import ConfigError, RecordError, nearest
from groupwise.core.parts.part import Part
from groupwise.core.records import Task
from groupwise.envs.babyai.view import (
    ACTIONS,
    COLOURS,
    FACING,
    KINDS,
    MAX_NUMBER,
    describe_state,
    describe_view,
    list_actions,
)
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.packages import report_missing_package
from groupwise.envs.kit.panel import Panels, PanelSizes, Proposal, build_panels, check_env, choose_split, panel_sizes_of
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.words import NOTHING_HAPPENS, prepend_goal, vocabulary_of

ENV = "babyai"
PREFIX = "BabyAI-"
SENTENCES = (
    "Task: Nothing happens. You see nothing, a wall step steps forward and left right. You carry nothing an open a",
    "locked a closed. go to the a object in front of you behind you on your left right pick up put next to open,",
    "then and after you.",
)
MAX_TASKS = 100_000


class Babyai(Part, slot="env"):
    """A level of BabyAI (Chevalier-Boisvert et al. 2019, arXiv:1810.08272), as MiniGrid has it, in words.

    What is in view is told as in BabyAI-Text (Carta et al. 2023, arXiv:2302.02662): things and walls, with their
    distance. The reward is the package's: 1 - 0.9 * steps / its own limit for a mission done, else 0. A fork is a deep
    copy. The expert is BabyAI's bot; it also knows the way back from a detour, but not from an opened box.

    Choices: all seven actions of the package are accepted; those that would change nothing are not listed. A task is a
    seed, and belongs to the split that the world it makes decides: a level with few worlds has small panels, and no
    world is in two. The `state_key` is the whole situation: place, direction, what is carried, everything else, and
    which parts of the mission are done.
    """

    level: str = "BabyAI-GoToLocal-v0"
    """Name in the package's registry; an unknown one gives the names."""
    num_train: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 500
    """Tasks in the training panel, if there are so many different worlds."""
    num_validation: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 50
    """Tasks in the validation panel."""
    num_test: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 100
    """Tasks in the test panel."""
    max_steps: Annotated[int, Field(ge=1)] = 64
    """Steps before an attempt is truncated; the level's own limit holds too."""
    goal_in_text: bool = False
    """Whether each text begins with the mission; for prompts that do not say `Observation.goal` themselves."""

    def panel(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_panels(self.level, panel_sizes_of(self)), split)

    def open(self, task: Task) -> BabyaiEnvironment:
        check_env(task, ENV)
        world = start_world(str(task.payload["level"]), task.seed)
        if _identify_world(world) != (task.payload["mission"], task.payload["start"]):
            raise RecordError(
                f"task {task.id}: seed {task.seed} now makes another world; play it with the version of minigrid that "
                "its panel was made with, or make the panel anew"
            )
        return BabyaiEnvironment(task, self, world)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = map(str, range(MAX_NUMBER + 1))
        return vocabulary_of((self.instruction(), *SENTENCES, *ACTIONS, *COLOURS, *KINDS, *FACING, *numbers))

    def instruction(self) -> str:
        return f"Do the mission, one action at a time: {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}."


class BabyaiEnvironment:
    """One attempt at a mission."""

    def __init__(self, task: Task, part: Babyai, world: Any) -> None:
        self._task, self._part, self._world = task, part, world
        self._progress = Progress(task, max_steps=part.max_steps)
        self._taken: tuple[int, ...] = ()
        self._guide: Guide | None = None
        self._observation = self._observe()

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if action not in ACTIONS:
            self._observation = self._observe(NOTHING_HAPPENS)
            return self._progress.outcome(self._observation, accepted=False)
        notice = "" if action in list_actions(self._world) else NOTHING_HAPPENS
        number = ACTIONS.index(action)
        _, reward, terminated, truncated, _ = self._world.step(number)
        self._taken = (*self._taken, number)
        self._observation = self._observe(notice)
        success = bool(reward > 0) if terminated else None
        return self._progress.outcome(self._observation, success=success, reward=float(reward), cut_off=bool(truncated))

    def fork(self) -> BabyaiEnvironment:
        twin = copy.copy(self)
        twin._world, twin._progress = copy.deepcopy(self._world), self._progress.fork()
        twin._guide = None  # it follows again when it is asked
        return twin

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        if self._guide is None:
            self._guide = Guide(start_world(str(self._task.payload["level"]), self._task.seed))
        advice = self._guide.advise(self._taken)
        return None if advice is None else ACTIONS[advice]

    def _observe(self, notice: str = "") -> Observation:
        text = f"{notice} {describe_view(self._world)}".strip()
        goal = f"{self._world.mission}."
        return Observation(
            text=prepend_goal(goal, text) if self._part.goal_in_text else text,
            state_key=describe_state(self._world),
            admissible=list_actions(self._world),
            goal=goal,
        )


class Guide:
    """BabyAI's bot in a world of its own, which follows an attempt: the bot has to see every action."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._bot: Any = import_module("minigrid.utils.baby_ai_bot").BabyAIBot(world)
        self._followed = 0
        self._advice = self._ask(None)

    def advise(self, taken: Sequence[int]) -> int | None:
        """The bot's next action after some actions; None where it has given up."""
        for action in taken[self._followed :]:
            self._followed += 1
            if self._bot is not None:
                self._world.step(action)
                self._advice = self._ask(action)
        return self._advice

    def _ask(self, taken: int | None) -> int | None:
        try:
            return int(self._bot.replan(taken))
        except Exception:  # the bot asserts what it takes for granted, and raises where it cannot help
            self._bot = None
            return None


def start_world(level: str, seed: int) -> Any:
    """A level's world at its beginning."""
    with _silence_output():
        world = _load_registry().make(level, disable_env_checker=True).unwrapped
        world.gen_obs = dict  # the numbers that it would show at each step take longer than the step, and nobody asks
        world.reset(seed=seed)
    return world


@cache
def _build_panels(level: str, sizes: PanelSizes) -> Panels:
    known = [name for name in _load_registry().registry if name.startswith(PREFIX)]
    if level not in known:
        raise ConfigError(f"babyai: there is no level {level!r}; {nearest(level, known)}")

    def propose(seed: int) -> Proposal:
        mission, start = _identify_world(start_world(level, seed))
        return Proposal(payload={"level": level, "mission": mission, "start": start}, seed=seed, tags=(level,))

    return build_panels(ENV, propose, sizes=sizes._asdict())


def _identify_world(world: Any) -> tuple[str, str]:
    return str(world.mission), describe_state(world)


@cache
def _load_registry() -> Any:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import_module("minigrid")
        return import_module("gymnasium")
    except ImportError:
        raise report_missing_package(ENV) from None


@contextmanager
def _silence_output() -> Iterator[None]:
    """Without what the package prints while it draws a world again that it could not use."""
    with redirect_stdout(StringIO()):
        yield
