"""An environment that does something wrong at a chosen place; workers import it by name."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from groupwise import Part, Task
from groupwise.envs import Identity, Observation, Outcome

TROUBLE_AT = ("c", "d", "e")
"""Actions that begin so make trouble: about one in seven of what an untrained model says."""
NOW_AND_THEN = 4
"""Of so many openings or answers of an expert, one makes trouble."""


class Odd(BaseException):
    """What no `except Exception` catches."""


class Unprintable(Exception):
    """Its message cannot be had."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("no message")


class Quarrelsome:
    """A key that can be neither compared nor shown."""

    def __eq__(self, other: object) -> NoReturn:
        raise RuntimeError("I am beyond comparison")

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> NoReturn:
        raise RuntimeError("I am not to be shown")


def _raise(error: BaseException) -> NoReturn:
    raise error


def _crash() -> None:
    ctypes.string_at(0)


def _fork() -> None:
    """Both go on; the child ends when its parent does not need it any more."""
    os.fork()


def _flood() -> None:
    """Much text, on both streams, where a protocol might be."""
    for descriptor in (1, 2):
        os.write(descriptor, b"nothing to see here " * 2000 + b"\n")


BREAKS: dict[str, Callable[[], object]] = {
    "raise": lambda: _raise(RuntimeError("the roof fell in")),
    "raise at length": lambda: _raise(RuntimeError("the roof\nfell in " * 50_000)),
    "raise a surrogate": lambda: _raise(ValueError("half of \ud83d")),
    "raise a control": lambda: _raise(ValueError("\x1b]52;c;aGk=\x07\u202e")),
    "raise past Exception": lambda: _raise(Odd("odd")),
    "raise without a message": lambda: _raise(Unprintable()),
    "raise StopIteration": lambda: _raise(StopIteration(3)),
    "raise GeneratorExit": lambda: _raise(GeneratorExit()),
    "raise TimeoutError": lambda: _raise(TimeoutError("slow")),
    "raise MemoryError": lambda: _raise(MemoryError()),
    "raise a group": lambda: _raise(BaseExceptionGroup("both", [ValueError("a"), Odd("b")])),
    "recurse": lambda: BREAKS["recurse"](),
    "sys.exit": lambda: sys.exit(0),
    "sys.exit with a text": lambda: sys.exit("\x1b[31mbye\ud800"),
}
"""What breaks a call and can be caught."""
ENDS: dict[str, Callable[[], object]] = {
    "exit with 0": lambda: os._exit(0),
    "exit with 7": lambda: os._exit(7),
    "crash": _crash,
    "abort": os.abort,
    "hang": lambda: time.sleep(600),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "kill itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "close its files": lambda: os.closerange(3, 256),
}
"""What ends or stops the process; only a worker can bear that."""
NUISANCES: dict[str, Callable[[], object]] = {"fork": _fork, "print": _flood, "change folder": lambda: os.chdir("/")}
"""What breaks nothing by itself; with workers only."""
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "np.float32": lambda: np.float32(0.5),
    "np.int64": lambda: np.int64(1),
    "np.bool": lambda: np.True_,
    "np.array": lambda: np.zeros(3),
    "a text": lambda: "no",
    "complex": lambda: 1 + 2j,
    "10**400": lambda: 10**400,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "bytes": lambda: b"\xff\x00",
    "a surrogate": lambda: "half of \ud83d",
    "controls": lambda: "\x1b]52;c;aGk=\x07\u202e",
    "a quarrelsome key": Quarrelsome,
    "an object": object,
    "a list": lambda: [1, "a"],
    "a dict": lambda: {"a": {1, 2}},
    "a set": lambda: {float("nan")},
    "a lambda": lambda: lambda: None,
    "a long text": lambda: "x" * 10**6,
    "a tuple of odd things": lambda: (None, b"x", "\ud800", Quarrelsome()),
}
"""What stands in a field that wants something else."""
SHOWN = ("text", "state_key", "admissible", "goal")
CAME = ("reward", "terminated", "truncated", "accepted", "success", "note", "observation")


class Troubled(Part, slot="env"):
    """Repeat two words, in a world that does something wrong."""

    place: str
    """Where: task set, open, observe, act, expert, or a field of what is shown or of what came."""
    deed: str
    """What: a key of the tables above."""
    always: bool
    """Whether each time, or now and then."""
    trace: str = ""
    """A file that grows by a byte each time; empty = none."""
    max_steps: int = 4

    def task_set(self, split: str) -> tuple[Task, ...]:
        sound = self._sound().task_set(split)
        if self.place != "task_set":
            return sound
        self.leave_trace()
        value = do(self.deed, sound)
        return (*sound, value) if self.always and value is not sound else value  # type: ignore[return-value]

    def open(self, task: Task) -> Any:
        if self.place == "open" and self.is_due():
            return self.act_up(TroubledEnvironment(self, self._sound().open(task)))
        return TroubledEnvironment(self, self._sound().open(task))

    def vocabulary(self) -> tuple[str, ...]:
        return self._sound().vocabulary()

    def instruction(self) -> str:
        return self._sound().instruction()

    def is_due(self) -> bool:
        """Whether it is time for trouble, where no action decides it."""
        return self.always or next(_asked) % NOW_AND_THEN == 1

    def act_up(self, sound: Any) -> Any:
        """Make trouble in place of something sound."""
        self.leave_trace()
        return do(self.deed, sound)

    def leave_trace(self) -> None:
        if self.trace:
            with Path(self.trace).open("ab") as file:
                file.write(b".")

    def _sound(self) -> Identity:
        return Identity(num_words=5, length=2)


_asked = count()


def do(deed: str, sound: Any) -> Any:
    """Do something wrong; what is returned in place of something sound."""
    if deed in VALUES:
        return VALUES[deed]()
    (BREAKS | ENDS | NUISANCES)[deed]()
    return sound


class TroubledEnvironment:
    """A rollout that goes wrong where its part says."""

    def __init__(self, part: Troubled, sound: Any) -> None:
        self._part, self._sound = part, sound

    def observe(self) -> Observation:
        shown: Observation = self._sound.observe()
        if self._part.place == "observe" and self._part.is_due():
            return self._part.act_up(shown)  # type: ignore[no-any-return]
        if self._part.place in SHOWN and self._part.is_due():
            return replace(shown, **{self._part.place: self._part.act_up(getattr(shown, self._part.place))})
        return shown

    def act(self, action: str) -> Outcome:
        outcome: Outcome = self._sound.act(action)
        if not (self._part.always or action.startswith(TROUBLE_AT)):
            return outcome
        if self._part.place == "act":
            return self._part.act_up(outcome)  # type: ignore[no-any-return]
        if self._part.place in CAME:
            return replace(outcome, **{self._part.place: self._part.act_up(getattr(outcome, self._part.place))})
        return outcome

    def expert(self) -> str | None:
        said = self._sound.expert()
        return self._part.act_up(said) if self._part.place == "expert" and self._part.is_due() else said  # type: ignore[no-any-return]
