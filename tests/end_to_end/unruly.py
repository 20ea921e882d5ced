"""An environment that misbehaves at some words, for runs in which it does; workers import it by name."""

from __future__ import annotations

import itertools
import math
import os
import time
from dataclasses import replace
from typing import Literal

from groupwise import Part, Task
from groupwise.envs import Identity, Observation, Outcome

TROUBLE_AT = ("c", "d", "e")
"""Actions that begin so make trouble: about one in seven of what an untrained model says."""

_opened = itertools.count()


class Unruly(Part, slot="env"):
    """Repeat a word, in a world that is not to be relied upon."""

    trouble: Literal["raise", "hang", "die", "nan", "elsewhere"]
    """What happens."""
    max_steps: int = 8

    def task_set(self, split: str) -> tuple[Task, ...]:
        return self._sound().task_set(split)

    def open(self, task: Task) -> UnrulyEnvironment:
        return UnrulyEnvironment(self._sound().open(task), self.trouble)

    def vocabulary(self) -> tuple[str, ...]:
        return self._sound().vocabulary()

    def instruction(self) -> str:
        return self._sound().instruction()

    def _sound(self) -> Identity:
        return Identity(num_words=4, length=1, max_steps=self.max_steps)


class UnrulyEnvironment:
    def __init__(self, sound: object, trouble: str) -> None:
        self._sound, self._trouble, self._number = sound, trouble, next(_opened)

    def observe(self) -> Observation:
        seen: Observation = self._sound.observe()  # type: ignore[attr-defined]
        return replace(seen, text=f"{seen.text} {self._number}") if self._trouble == "elsewhere" else seen

    def act(self, action: str) -> Outcome:
        outcome: Outcome = self._sound.act(action)  # type: ignore[attr-defined]
        if not action.startswith(TROUBLE_AT):
            return outcome
        if self._trouble == "raise":
            raise RuntimeError("the roof fell in")
        if self._trouble == "hang":
            time.sleep(60)
        if self._trouble == "die":
            os._exit(7)
        return replace(outcome, reward=math.nan)
