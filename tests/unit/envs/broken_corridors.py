"""Environments that break one rule of the checker each, and no other."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import count
from typing import ClassVar

from groupwise import Task
from groupwise.envs import Environment, Outcome
from tests.unit.envs.corridor import Branching, Corridor, CorridorPart


class Tuples(Corridor):
    def act(self, action: str) -> Outcome:
        outcome = super().act(action)
        return (outcome.observation, outcome.reward, outcome.terminated)  # type: ignore[return-value]


class Unseeded(Corridor):
    def stride(self) -> int:
        return random.SystemRandom().choice((1, 2))


class LookingMoves(Corridor):
    looks = 0

    def text(self) -> str:
        self.looks += 1
        return super().text() if self.looks % 5 else "at left"


class GlobalGenerator(Corridor):
    """What several published environments do: seed the process-wide generator, then draw from it."""

    def __init__(self, task: Task, max_steps: int) -> None:
        super().__init__(task, max_steps)
        random.seed(self.goal)

    def stride(self) -> int:
        return random.choice((1, 2))


class GlobalSeeder(Corridor):
    """Draws nothing itself, but reseeds everybody else."""

    def __init__(self, task: Task, max_steps: int) -> None:
        super().__init__(task, max_steps)
        random.seed(7)


class Endless(Corridor):
    def act(self, action: str) -> Outcome:
        self.progress.steps = 0
        return super().act(action)


class Patient(Corridor):
    """An action that it does not understand does not count as a step."""

    def act(self, action: str) -> Outcome:
        if action not in ("left", "right"):
            return Outcome(observation=self.observe(), accepted=False)
        return super().act(action)


class Silent(Corridor):
    def act(self, action: str) -> Outcome:
        outcome = super().act(action)
        return Outcome(
            observation=outcome.observation,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            accepted=outcome.accepted,
        )


class Immortal(Corridor):
    def act(self, action: str) -> Outcome:
        if self.progress.ended:
            return Outcome(observation=self.observe(), terminated=True, success=False)
        return super().act(action)


class ListKey(Corridor):
    def key(self) -> object:
        return [self.at]


class NewKey(Corridor):
    serial: ClassVar = count()

    def __init__(self, task: Task, max_steps: int) -> None:
        super().__init__(task, max_steps)
        self.own = f"{'abcdefghij'[next(self.serial) % 10]}{next(self.serial)}"

    def key(self) -> object:
        return (self.own, self.at)


class CountingKey(Corridor):
    def key(self) -> object:
        return f"{self.at}, step {self.progress.steps}"


class Straight(Branching):
    """Lists no actions, so that only its expert is followed, and no situation comes again by itself."""

    def list_actions(self) -> tuple[str, ...]:
        return None  # type: ignore[return-value]


class CountingExpert(Straight):
    """So a counter in its keys shows only where a step is wasted."""

    def key(self) -> object:
        return tuple("abcdefghijklmnop"[number] for number in (self.at, self.progress.steps))


class CountingForward(Branching):
    """Its counter stands still at an action that is not understood; it shows in ways there and back."""

    moves = 0

    def act(self, action: str) -> Outcome:
        self.moves += action in ("left", "right")
        return super().act(action)

    def fork(self) -> Environment:
        twin = super().fork()
        twin.moves = self.moves  # type: ignore[attr-defined]
        return twin

    def key(self) -> object:
        return ("at", self.at, "abcdefghijklmnop"[self.moves])


class CountingText(Corridor):
    """The counter is in the text too, so no situation ever comes again."""

    def text(self) -> str:
        return f"at {self.at} of {self.goal} - {self.progress.steps}"

    def key(self) -> object:
        return self.text()


class ClockKey(Corridor):
    def key(self) -> object:
        return f"{self.at} at {int(time.time()) // 3600 * 3600}"


class SetKey(Corridor):
    def key(self) -> object:
        return frozenset({self.at})


class TouchyKey(Corridor):
    """Hashable, and not to be compared."""

    class Key:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("do not compare me")

        def __hash__(self) -> int:
            return 1

    def key(self) -> object:
        return self.Key()


class RudeHash(Corridor):
    class Key:
        def __hash__(self) -> int:
            raise RuntimeError("do not hash me")

    def key(self) -> object:
        return self.Key()


class TruthyEnd(Corridor):
    def act(self, action: str) -> Outcome:
        return replace(super().act(action), accepted="yes" if action in ("left", "right") else "")  # type: ignore[arg-type]


class FalseList(Corridor):
    def list_actions(self) -> tuple[str, ...]:
        return ("left", "right", "go")


class Fragile(Corridor):
    def act(self, action: str) -> Outcome:
        {"left": -1, "right": 1}[action]
        return super().act(action)


class Permissive(Corridor):
    def act(self, action: str) -> Outcome:
        return super().act(action if action in ("left", "right") else "left")


class NotANumber(Corridor):
    def reward(self) -> float:
        return float("nan")


class ForkFromStart(Branching):
    def fork(self) -> Environment:
        twin = super().fork()
        assert isinstance(twin, ForkFromStart)
        twin.at -= 1
        return twin


class Body:
    at = 0


class SharedFork(Branching):
    def __init__(self, task: Task, max_steps: int) -> None:
        self.body = Body()
        super().__init__(task, max_steps)

    @property
    def at(self) -> int:  # type: ignore[override]
        return self.body.at

    @at.setter
    def at(self, value: int) -> None:
        self.body.at = value

    def fork(self) -> Environment:
        twin = SharedFork.__new__(SharedFork)
        twin.body, twin.goal, twin.progress = self.body, self.goal, self.progress.fork()
        return twin


class Lost(Corridor):
    def expert(self) -> str | None:
        return "left"


class Mumbling(Corridor):
    def expert(self) -> str | None:
        return "right" if self.progress.steps % 2 else "go to the goal"


def part_of(broken: type[Corridor]) -> type[CorridorPart]:
    class BrokenPart(CorridorPart):
        world: ClassVar[type[Corridor]] = broken

    BrokenPart.__name__ = broken.__name__
    return BrokenPart


class Leaking(CorridorPart):
    def task_set(self, split: str) -> tuple[Task, ...]:
        if split != "test":
            return super().task_set(split)
        return tuple(
            Task.create(env="corridor", split="test", payload=task.payload) for task in super().task_set("train")
        )


class Growing(CorridorPart):
    calls: ClassVar[list[str]] = []

    def task_set(self, split: str) -> tuple[Task, ...]:
        self.calls.append(split)
        extra = Task.create(env="corridor", split=split, payload={"start": -len(self.calls), "goal": 2})
        return (*super().task_set(split), extra)


class Numbered(CorridorPart):
    def task_set(self, split: str) -> tuple[Task, ...]:
        tasks = super().task_set(split)
        return tuple(
            Task(id=f"{split}-{number}", env="corridor", split=split, payload=task.payload)
            for number, task in enumerate(tasks)
        )


class Wordless(CorridorPart):
    def vocabulary(self) -> tuple[str, ...]:
        return tuple(word for word in super().vocabulary() if word != "of")


class Shouting(CorridorPart):
    def instruction(self) -> str:
        return "Go\nto\nthe\ngoal"


class Empty(CorridorPart):
    def task_set(self, split: str) -> tuple[Task, ...]:
        return ()


class Unopenable(CorridorPart):
    def open(self, task: Task) -> Environment:
        raise FileNotFoundError("no game file")


BREAKS: dict[type[CorridorPart], str] = {
    part_of(Tuples): "opens_and_plays",
    Shouting: "opens_and_plays",
    Empty: "opens_and_plays",
    Unopenable: "opens_and_plays",
    part_of(Unseeded): "is_repeatable",
    part_of(LookingMoves): "observe_has_no_effect",
    part_of(GlobalGenerator): "is_isolated",
    part_of(GlobalSeeder): "is_isolated",
    part_of(Endless): "ends_in_time",
    part_of(Patient): "ends_in_time",
    part_of(Silent): "success_is_told_at_the_end",
    part_of(Immortal): "refuses_to_act_after_the_end",
    part_of(ListKey): "state_key_is_hashable",
    part_of(NewKey): "state_key_is_equal_for_equal_situations",
    part_of(CountingKey): "state_key_has_no_counter_or_clock",
    part_of(CountingExpert): "state_key_has_no_counter_or_clock",
    part_of(CountingForward): "state_key_has_no_counter_or_clock",
    part_of(SetKey): "state_key_can_be_written",
    part_of(TouchyKey): "state_key_can_be_written",
    part_of(RudeHash): "state_key_is_hashable",
    part_of(TruthyEnd): "fields_have_their_types",
    part_of(CountingText): "state_key_has_no_counter_or_clock",
    part_of(ClockKey): "state_key_has_no_counter_or_clock",
    part_of(FalseList): "admissible_actions_are_accepted",
    part_of(Fragile): "nonsense_is_refused",
    part_of(Permissive): "nonsense_is_refused",
    part_of(NotANumber): "rewards_are_finite",
    part_of(ForkFromStart): "fork_is_exact",
    part_of(SharedFork): "fork_is_independent",
    part_of(Lost): "expert_succeeds",
    part_of(Mumbling): "expert_succeeds",
    Leaking: "task_sets_are_disjoint",
    Growing: "task_sets_are_fixed",
    Numbered: "task_ids_come_from_content",
    Wordless: "vocabulary_covers_every_word",
}
"""Each broken environment, and the one rule it breaks."""
