"""ScienceWorld: experiments at school level in a text world, on Java."""

from __future__ import annotations

from functools import cache, partial
from typing import Annotated, Any

from pydantic import Field

from groupwise.core.errors import ConfigError, nearest
from groupwise.core.parts.part import Part
from groupwise.core.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.java_worlds.simulator import (
    Simulator,
    jar_file,
    package_version,
    texts_of,
    virtual_machine,
    words_in,
)
from groupwise.envs.kit.panel import check_env, choose_split
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.words import vocabulary_of

ENV = "scienceworld"
PACKAGE = "scienceworld"
JAR = "scienceworld.jar"
NOT_UNDERSTOOD = "No known action matches that input."
LARGEST = 1_000
"""The largest number in the world's texts."""


class Scienceworld(Part, slot="env"):
    """ScienceWorld (Wang et al. 2022, arXiv:2203.07540): 30 kinds of experiments, 7,200 variations.

    A task is a kind and a variation; the panels are the package's own splits of variations, kinds in turn. The reward
    of a step is what the score, up to 1, gained; a score below 0 fails the task. The expert follows the gold path while
    the attempt does, and has nothing to say off it. A fork repeats the actions, at some 25 ms each.

    Choices: a command is refused if the simulator matches it with no action; listed ones and their paraphrases count.
    Texts are on one line. The `state_key` is what looking around and the inventory show, both free of time.
    """

    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("find-living-thing",)
    """Kinds of experiments, such as "boil"; an unknown one gives the names of all."""
    simplifications: str = "easy"
    """The package's simplifications, joined by commas; empty = none."""
    list_actions: bool = True
    """Whether the possible actions, often hundreds, are listed; it costs four times the rest of a step."""
    max_steps: Annotated[int, Field(ge=1)] = 100
    """Steps before an attempt is truncated."""

    def panel(self, split: str) -> tuple[Task, ...]:
        of = package_version(ENV, PACKAGE)
        panels = {name: self._panel(name, of) for name in ("train", "validation", "test")}
        return choose_split(panels, split)

    def open(self, task: Task) -> ScienceworldEnvironment:
        check_env(task, ENV)
        return ScienceworldEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = map(str, range(LARGEST + 1))
        known = words_in(jar_file(ENV, PACKAGE, JAR), "scienceworld/")
        return vocabulary_of((self.instruction(), ".,:;!?'()-/*+=", *numbers, *known))

    def instruction(self) -> str:
        return "Do the experiment, one command at a time."

    def _panel(self, split: str, of: str) -> tuple[Task, ...]:
        listed = [[(name, number) for number in _variations(name)[split]] for name in self.tasks]
        turns = [each[i] for i in range(max(map(len, listed))) for each in listed if i < len(each)]
        rest = {"simplifications": self.simplifications, "version": of}
        return tuple(
            Task.create(env=ENV, split=split, payload={"task": name, "variation": number, **rest}, tags=(name,))
            for name, number in turns
        )


class ScienceworldEnvironment:
    """One attempt at an experiment."""

    _observation: Observation

    def __init__(self, task: Task, part: Scienceworld) -> None:
        self._task, self._part = task, part
        self._progress = Progress(task, max_steps=part.max_steps)
        self._simulator = Simulator(partial(_begin, task), _step)
        self._score = 0.0
        self._goal = _line(self._simulator.ask(lambda java: java[0].getTaskDescription()))
        self._see()

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        self._simulator.act(action)
        said = str(self._simulator.java[1])
        score, completed = self._simulator.ask(lambda java: (float(java[0].getScore()), bool(java[0].getCompleted())))
        reward, self._score = score - self._score, score
        self._see()
        success = score >= 1 if completed or score < 0 else None
        accepted = not said.startswith(NOT_UNDERSTOOD)
        return self._progress.outcome(self._observation, success=success, reward=reward, accepted=accepted)

    def fork(self) -> ScienceworldEnvironment:
        twin = ScienceworldEnvironment.__new__(ScienceworldEnvironment)
        twin._task, twin._part, twin._goal = self._task, self._part, self._goal
        twin._observation, twin._score = self._observation, self._score
        twin._simulator, twin._progress = self._simulator.fork(), self._progress.fork()
        return twin

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        of = self._task.payload
        return self._simulator.next_of(_gold(of["task"], of["variation"], of["simplifications"]))

    def _see(self) -> None:
        here = self._simulator.ask(lambda java: f"{java[0].freeActionLook()} {java[0].freeActionInventory()}")
        listed = None
        if self._part.list_actions:
            listed = tuple(sorted(set(self._simulator.ask(_valid_actions))))
        text = _line(str(self._simulator.java[1]))
        self._observation = Observation(text=text, state_key=_line(here), admissible=listed, goal=self._goal)


def _begin(task: Task) -> list[Any]:
    """A simulator at the start of a task, and what it says."""
    of = task.payload
    java = _loaded(str(of["task"]), int(of["variation"]), str(of["simplifications"]), False)
    return [java, java.step("look around")]


def _step(java: list[Any], action: str) -> None:
    java[1] = java[0].step(action)


def _valid_actions(java: list[Any]) -> list[str]:
    return texts_of(virtual_machine(ENV, PACKAGE, JAR), java[0].getValidActionObjectCombinations())


def _loaded(name: str, variation: int, simplifications: str, with_gold: bool) -> Any:
    java = virtual_machine(ENV, PACKAGE, JAR).scienceworld.runtime.pythonapi.PythonInterface()
    known = texts_of(virtual_machine(ENV, PACKAGE, JAR), java.getTaskNames())
    if name not in known:
        raise ConfigError(f"scienceworld: there is no task {name!r}; {nearest(name, known)}")
    java.load(name, variation, simplifications, with_gold)
    java.reset()
    return java


@cache
def _variations(name: str) -> dict[str, tuple[int, ...]]:
    java = _loaded(name, 0, "", False)
    found = {
        "train": java.getVariationsTrain(),
        "validation": java.getVariationsDev(),
        "test": java.getVariationsTest(),
    }
    return {split: tuple(int(number) for number in numbers) for split, numbers in found.items()}


@cache
def _gold(name: str, variation: int, simplifications: str) -> tuple[str, ...]:
    """The gold path; making it takes seconds, so a simulator of its own does it when it is first asked for."""
    maker = Simulator(lambda: [_loaded(name, variation, simplifications, True)], _step)
    return tuple(maker.ask(_gold_actions))


def _gold_actions(java: list[Any]) -> list[str]:
    return texts_of(virtual_machine(ENV, PACKAGE, JAR), java[0].getGoldActionSequence())


def _line(text: str) -> str:
    return " ".join(text.split())
