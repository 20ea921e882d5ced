"""TextWorldExpress: eight categories of small text games on Java, thousands of steps per second."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.java_simulator import Simulator, collect_words, connect_machine, find_jar, read_texts
from groupwise.envs.kit.packages import package_version
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import check_env, check_split, list_seed_tasks
from groupwise.envs.kit.words import NOTHING_HAPPENS, to_one_line, vocabulary_of
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError

ENV = "textworld_express"
PACKAGE = "textworld_express"
JAR = "textworld-express.jar"
FOLDS = {"train": "train", "validation": "dev", "test": "test"}
"""The package's own name for each split."""
FIRST_SEED = {"train": 0, "validation": 10_000, "test": 20_000}
MAX_TASKS = 1_000
MAX_NUMBER = {"arithmetic": 10_000, "sorting": 10_000}
"""The largest number in a game's texts; elsewhere 100."""
UNITS = ("mm", "cm", "m", "ml", "l", "mg", "g", "kg")
MAX_QUANTITY = 50
"""The largest quantity of `sorting`, which writes a number and its unit as one word."""
ENTANGLED = ("sorting",)
"""Categories whose games in one virtual machine affect each other: only the one begun last is correct."""

_LATEST: dict[str, Any] = {}
"""The simulator that began last, per such category."""
_GOLD: dict[str, tuple[str, ...]] = {}


class TextworldExpress(Part, slot="env"):
    """TextWorldExpress (Jansen and Côté 2023, arXiv:2208.01174): cooking, tidying, coins, maps, sums, sorting and more.

    A task is a game, its parameters and a seed; seeds and folds are the package's own. The reward of a step is the
    increase of the score, which is 0 to 1. The game's success and failure end a rollout. The expert follows the gold
    path; after another action it has none. A fork repeats the actions, less than a millisecond each. A rollout of
    `sorting` does so too after another one has acted, because games of that category take each other's things.

    Choices: a command must be written exactly as listed; others are not sent. Texts are on one line. The `state_key` is
    the text of the place and the inventory; `simonsays` has neither, so there it is the observation.
    """

    game: Literal["coin", "cookingworld", "twc", "mapreader", "arithmetic", "sorting", "simonsays", "peckingorder"] = (
        "coin"
    )
    """The category of games."""
    params: dict[str, int] = Field(default_factory=dict)
    """Parameters of the category, such as { numLocations = 5, includeDoors = 0 }."""
    num_train: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1_000
    """Tasks in the train set."""
    num_validation: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 100
    """Tasks in the validation set."""
    num_test: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 200
    """Tasks in the test set."""
    max_steps: Annotated[int, Field(ge=1)] = 100
    """Steps before a rollout is truncated; gold paths have up to 60."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        check_split(split)
        made = {"fold": FOLDS[split], "version": package_version(ENV, PACKAGE)}
        payload = {"game": self.game, "params": dict(sorted(self.params.items())), **made}
        return list_seed_tasks(ENV, self, split, payload, first_seed=FIRST_SEED, tags=(self.game,))

    def open(self, task: Task) -> TextworldExpressEnvironment:
        check_env(task, ENV)
        return TextworldExpressEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = map(str, range(MAX_NUMBER.get(self.game, 100) + 1))
        quantities = [f"{number}{unit}" for number in range(1, MAX_QUANTITY + 1) for unit in UNITS]
        known = [*collect_words(find_jar(ENV, PACKAGE, JAR), "textworldexpress/")]
        known += quantities if self.game == "sorting" else []
        return vocabulary_of((self.instruction(), NOTHING_HAPPENS, ".,:;!?'()-/*+=", *numbers, *known))

    def instruction(self) -> str:
        return "Do the task, one command at a time."


class TextworldExpressEnvironment(SteppedEnvironment):
    """One rollout of a game."""

    def __init__(self, task: Task, part: TextworldExpress) -> None:
        super().__init__(task, part.max_steps)
        self._task = task
        self._simulator = Simulator(partial(_begin, task), _step)
        self._score = 0.0
        self._goal = to_one_line(self._simulator.ask(lambda java: java[0].getTaskDescription()))
        self._progress.observation = self._observe(self._simulator.java[1])

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if action not in (self.observe().admissible or ()):
            return self._progress.outcome(replace(self.observe(), text=NOTHING_HAPPENS), accepted=False)
        game = self._task.payload["game"]
        if game in ENTANGLED and _LATEST[game] is not self._simulator.java[0]:
            self._simulator.renew()
        self._simulator.act(action)
        state = self._simulator.java[1]
        reward, self._score = float(state["score"]) - self._score, float(state["score"])
        success = True if state["tasksuccess"] else False if state["taskfailure"] else None
        return self._progress.outcome(self._observe(state), success=success, reward=reward)

    def fork(self) -> Self:
        twin = super().fork()
        twin._simulator = self._simulator.fork()
        return twin

    def expert(self) -> str | None:
        return None if self._progress.ended else self._simulator.next_action_of(_find_gold_path(self._task))

    def _observe(self, state: dict[str, Any]) -> Observation:
        text, here = to_one_line(state["observation"]), to_one_line(f"{state['look']} {state['inventory']}")
        admissible = tuple(sorted(state["validActions"]))
        return Observation(text=text, state_key=here or text, admissible=admissible, goal=self._goal)


def _begin(task: Task, *, with_gold: bool = False) -> list[Any]:
    java = connect_machine(ENV, PACKAGE, JAR).textworldexpress.runtime.PythonInterface()
    payload = task.payload
    trouble = java.load(payload["game"], ",".join(f"{name}={value}" for name, value in payload["params"].items()))
    if trouble:
        raise ConfigError(f"textworld_express {payload['game']!r}: {to_one_line(trouble)}; use its own `params`")
    if payload["game"] in ENTANGLED:
        _LATEST[payload["game"]] = java
    return [java, json.loads(java.generateNewGameJSON(task.seed, payload["fold"], with_gold))]


def _find_gold_path(task: Task) -> tuple[str, ...]:
    """The gold path; its own simulator makes it at first use, because most rollouts do not need it."""
    if task.id not in _GOLD:
        maker = Simulator(partial(_begin, task, with_gold=True), _step)
        _GOLD[task.id] = tuple(
            maker.ask(lambda java: read_texts(connect_machine(ENV, PACKAGE, JAR), java[0].getGoldActionSequence()))
        )
    return _GOLD[task.id]


def _step(java: list[Any], action: str) -> None:
    java[1] = json.loads(java[0].stepJSON(action))
