"""Environments whose experts, task sets or processes misbehave, for runs that begin with a warm start."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import Any, ClassVar

from groupwise import Part, Task
from groupwise.envs import Identity, Observation, Outcome


class BadTeacher(Part, slot="env"):
    """Repeat a word; at every so many tasks something happens, in the place that is named."""

    trouble: str = ""
    """raise, exit, die, kill or hang."""
    place: str = "expert"
    """open, observe, expert or act."""
    every: int = 4
    """At one task in so many."""
    max_steps: int = 8

    def task_set(self, split: str) -> tuple[Task, ...]:
        return self._sound().task_set(split)

    def open(self, task: Task) -> TaughtEnvironment:
        number = [each.id for each in self.task_set(task.split)].index(task.id)
        return TaughtEnvironment(self._sound().open(task), self, is_bad=number % self.every == self.every - 1)

    def vocabulary(self) -> tuple[str, ...]:
        return self._sound().vocabulary()

    def instruction(self) -> str:
        return self._sound().instruction()

    def _sound(self) -> Identity:
        return Identity(num_words=4, length=2, max_steps=self.max_steps)


class TaughtEnvironment:
    def __init__(self, sound: Any, part: BadTeacher, *, is_bad: bool) -> None:
        self._sound, self._part, self._is_bad = sound, part, is_bad
        self._maybe("open")

    def observe(self) -> Observation:
        self._maybe("observe")
        return self._sound.observe()  # type: ignore[no-any-return]

    def act(self, action: str) -> Outcome:
        self._maybe("act")
        return self._sound.act(action)  # type: ignore[no-any-return]

    def expert(self) -> str | None:
        self._maybe("expert")
        return self._sound.expert()  # type: ignore[no-any-return]

    def _maybe(self, place: str) -> None:
        if self._is_bad and self._part.place == place:
            make_trouble(self._part.trouble)


def make_trouble(trouble: str) -> None:
    if trouble == "raise":
        raise RuntimeError("the roof fell in")
    if trouble == "exit":
        sys.exit(0)
    if trouble == "die":
        os._exit(0)
    if trouble == "kill":
        os.kill(os.getpid(), signal.SIGSEGV)
    if trouble == "hang":
        time.sleep(1000)


class Unteachable(BadTeacher):
    """Has no expert at all."""

    def open(self, task: Task) -> Any:
        return self._Without(self._sound().open(task))

    class _Without:
        def __init__(self, sound: Any) -> None:
            self.observe, self.act = sound.observe, sound.act


class UnrulyTaskSet(BadTeacher):
    """Its task set, its words, its instruction or its number of steps are wrong."""

    wrong: str
    """What is wrong."""

    ANSWERS: ClassVar[dict[str, Any]] = {
        "task_set None": None,
        "task_set of text": ("a", "b"),
        "task_set empty": (),
        "task_set one task": Task.create(env="identity"),
        "task id": (Task(id=7),),  # type: ignore[arg-type]
        "task id half": (Task(id="half \ud83d"),),
        "task seed": (Task(id="a", seed="7"),),  # type: ignore[arg-type]
        "task payload": (Task(id="a", payload=[1]),),  # type: ignore[arg-type]
        "task tags": (Task(id="a", tags=("a", 3)),),  # type: ignore[arg-type]
        "vocabulary None": None,
        "vocabulary of numbers": (1, 2),
        "vocabulary text": "one two",
        "instruction None": None,
        "instruction bytes": b"go",
    }

    def task_set(self, split: str) -> Any:
        return self._answer(("task_set", "task"), super().task_set(split))

    def vocabulary(self) -> Any:
        return self._answer(("vocabulary",), super().vocabulary())

    def instruction(self) -> Any:
        return self._answer(("instruction",), super().instruction())

    def _answer(self, about: tuple[str, ...], right: Any) -> Any:
        what, _, how = self.wrong.partition(" ")
        if what not in about:
            return right
        make_trouble(how)
        return self.ANSWERS.get(self.wrong, right)


class Forking(Part, slot="env"):
    """Copies its process at the action "fork" and lets the copy return; at "linger" the copy waits a while first.
    At "close" it closes every file of its process, the one that leads to the run too."""

    max_steps: int = 50

    def task_set(self, split: str) -> tuple[Task, ...]:
        return tuple(Task.create(env="forking", split=split, payload={"number": number}) for number in range(3))

    def open(self, task: Task) -> ForkingEnvironment:
        return ForkingEnvironment()

    def vocabulary(self) -> tuple[str, ...]:
        return ("fork",)

    def instruction(self) -> str:
        return "Fork."


class ForkingEnvironment:
    owner = 0

    def __init__(self) -> None:
        type(self).owner = self.owner or os.getpid()
        self.steps = 0

    def observe(self) -> Observation:
        who = "original" if os.getpid() == self.owner else "copy"
        return Observation(text=f"{who} {self.steps}", state_key=self.steps)

    def act(self, action: str) -> Outcome:
        self.steps += 1
        word, _, rest = action.partition(" ")
        if word in ("fork", "linger") and os.fork() == 0 and word == "linger":
            time.sleep(0.3)
        if word == "say":
            say_out_of_turn(rest.encode() + b"\n")
        if word == "shout":
            say_out_of_turn(b"x" * int(rest))
        if word == "close":
            os.closerange(3, 4096)
        return Outcome(observation=self.observe(), reward=1.0)


def say_out_of_turn(said: bytes) -> None:
    """Write to every socket that the process holds, as if it were an answer."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            copy = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with copy:
            copy.sendall(said)
