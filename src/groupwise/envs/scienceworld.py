"""ScienceWorld: experiments at school level in a text environment, on Java."""

from __future__ import annotations

from functools import cache, partial
from typing import Annotated, Any, Self

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.java_simulator import Simulator, collect_words, connect_machine, find_jar, read_texts
from groupwise.envs.kit.packages import package_version
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import check_env, check_split, take_in_turn
from groupwise.envs.kit.words import to_one_line, vocabulary_of
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError, nearest

ENV = "scienceworld"
PACKAGE = "scienceworld"
JAR = "scienceworld.jar"
NOT_UNDERSTOOD = "No known action matches that input."
MAX_NUMBER = 1_000
"""The largest number in the environment's texts."""


class Scienceworld(Part, slot="env"):
    """ScienceWorld (Wang et al. 2022, arXiv:2203.07540): 30 kinds of experiments, 7,200 variations.

    A task is a kind and a variation. The task sets are the package's own splits of variations, kinds in turn. The
    reward of a step is the increase of the score, which is at most 1; a score below 0 fails the task. The expert
    follows the gold path; after another action it has none. A fork repeats the actions, about 25 ms each.

    Choices: a command is invalid if the simulator knows no action for it; paraphrases of listed commands are valid.
    Texts are on one line. The `state_key` is the text of looking around and of the inventory; both cost no time in the
    simulator.
    """

    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("find-living-thing",)
    """Kinds of experiments, such as "boil"; the error for an unknown one lists all names."""
    simplifications: str = "easy"
    """The package's simplifications, joined by commas; empty = none."""
    list_actions: bool = True
    """Whether to list the possible actions, often hundreds; this takes four times as long as the rest of a step."""
    max_steps: Annotated[int, Field(ge=1)] = 100
    """Steps before a rollout is truncated."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        version = package_version(ENV, PACKAGE)
        check_split(split)
        listed = [[(name, number) for number in _read_variations(name)[split]] for name in self.tasks]
        rest = {"simplifications": self.simplifications, "version": version}
        return tuple(
            Task.create(env=ENV, split=split, payload={"task": name, "variation": number, **rest}, tags=(name,))
            for name, number in take_in_turn(listed)
        )

    def open(self, task: Task) -> ScienceworldEnvironment:
        check_env(task, ENV)
        return ScienceworldEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = map(str, range(MAX_NUMBER + 1))
        known = collect_words(find_jar(ENV, PACKAGE, JAR), "scienceworld/")
        return vocabulary_of((self.instruction(), ".,:;!?'()-/*+=", *numbers, *known))

    def instruction(self) -> str:
        return "Do the experiment, one command at a time."


class ScienceworldEnvironment(SteppedEnvironment):
    """One rollout of an experiment."""

    def __init__(self, task: Task, part: Scienceworld) -> None:
        super().__init__(task, part.max_steps)
        self._task, self._part = task, part
        self._simulator = Simulator(partial(_begin, task), _step)
        self._score = 0.0
        self._goal = to_one_line(self._simulator.ask(lambda java: java[0].getTaskDescription()))
        self._progress.observation = self._observe()

    def act(self, action: str) -> Outcome:
        self._progress.step()
        self._simulator.act(action)
        answer = str(self._simulator.java[1])
        score, completed = self._simulator.ask(lambda java: (float(java[0].getScore()), bool(java[0].getCompleted())))
        reward, self._score = score - self._score, score
        success = score >= 1 if completed or score < 0 else None
        accepted = not answer.startswith(NOT_UNDERSTOOD)
        return self._progress.outcome(self._observe(), success=success, reward=reward, accepted=accepted)

    def fork(self) -> Self:
        twin = super().fork()
        twin._simulator = self._simulator.fork()
        return twin

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        payload = self._task.payload
        return self._simulator.next_action_of(
            _find_gold_path(payload["task"], payload["variation"], payload["simplifications"])
        )

    def _observe(self) -> Observation:
        here = self._simulator.ask(lambda java: f"{java[0].freeActionLook()} {java[0].freeActionInventory()}")
        admissible = None
        if self._part.list_actions:
            listed = self._simulator.ask(lambda java: _read(java[0].getValidActionObjectCombinations()))
            admissible = tuple(sorted(set(listed)))
        text = to_one_line(str(self._simulator.java[1]))
        return Observation(text=text, state_key=to_one_line(here), admissible=admissible, goal=self._goal)


def _begin(task: Task) -> list[Any]:
    payload = task.payload
    java = _load(str(payload["task"]), int(payload["variation"]), str(payload["simplifications"]), False)
    return [java, java.step("look around")]


def _step(java: list[Any], action: str) -> None:
    java[1] = java[0].step(action)


def _read(texts: Any) -> list[str]:
    return read_texts(connect_machine(ENV, PACKAGE, JAR), texts)


def _load(name: str, variation: int, simplifications: str, with_gold: bool) -> Any:
    java = connect_machine(ENV, PACKAGE, JAR).scienceworld.runtime.pythonapi.PythonInterface()
    known = _read(java.getTaskNames())
    if name not in known:
        raise ConfigError(f"scienceworld: there is no task {name!r}; {nearest(name, known)}")
    java.load(name, variation, simplifications, with_gold)
    java.reset()
    return java


@cache
def _read_variations(name: str) -> dict[str, tuple[int, ...]]:
    java = _load(name, 0, "", False)
    by_split = {
        "train": java.getVariationsTrain(),
        "validation": java.getVariationsDev(),
        "test": java.getVariationsTest(),
    }
    return {split: tuple(int(number) for number in numbers) for split, numbers in by_split.items()}


@cache
def _find_gold_path(name: str, variation: int, simplifications: str) -> tuple[str, ...]:
    """The gold path; it takes seconds, so its own simulator makes it at first use."""
    maker = Simulator(lambda: [_load(name, variation, simplifications, True)], _step)
    return tuple(maker.ask(lambda java: _read(java[0].getGoldActionSequence())))
