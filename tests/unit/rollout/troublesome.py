"""Environments that misbehave on request; workers import them by name."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from weakref import WeakSet

from pydantic import field_validator

from groupwise import Part, Task
from groupwise.envs import Observation, Outcome


def task(name: str = "a", **payload: Any) -> Task:
    return Task.create(env="troublesome", split="train", payload={"name": name, **payload})


class Unspeakable(RuntimeError):
    def __str__(self) -> str:
        raise RuntimeError("even this fails")


class Homebody:
    """Nothing that a record could hold."""


class Troublesome(Part, slot="env"):
    """Does what an action says, trouble included. A task with `again` makes trouble when it is opened once more."""

    max_steps: int = 50

    def task_set(self, split: str) -> tuple[Task, ...]:
        return (task(),)

    def open(self, task: Task) -> TroublesomeEnvironment:
        return TroublesomeEnvironment(task)

    def vocabulary(self) -> tuple[str, ...]:
        return ("walked", "walk", "raise", "hang", "die", "end")

    def instruction(self) -> str:
        return "Walk."


class TroublesomeEnvironment:
    living: ClassVar[WeakSet[TroublesomeEnvironment]] = WeakSet()

    def __init__(self, task: Task) -> None:
        self.living.add(self)
        self.walked = 0
        self.word = "walked"
        if "again" in task.payload:
            visits = Path(task.payload["visits"])
            if visits.exists() and task.payload["again"] == "elsewhere":
                self.word = "ran"
            elif visits.exists():
                make_trouble(task.payload["again"])
            visits.touch()
        if "now" in task.payload:
            make_trouble(task.payload["now"])

    def observe(self) -> Observation:
        return Observation(text=f"{self.word} {self.walked}", state_key=self.walked)

    def act(self, action: str) -> Outcome:
        self.walked += 1
        if action == "walk":
            return Outcome(observation=self.observe(), reward=1.0)
        if action == "end":
            return Outcome(observation=self.observe(), terminated=True, success=True)
        if action == "return a dict":
            return {}  # type: ignore[return-value]
        return Outcome(observation=Observation(text=answer_to(action), state_key=keys().get(action)))


def keys() -> dict[str, Any]:
    return {"give a lambda": lambda: None, "give a homebody": Homebody()}


def answer_to(action: str) -> str:
    """What a harmless request is answered with; others make trouble."""
    word, _, rest = action.partition(" ")
    if word == "give":
        return action
    if word == "nap":
        begin = time.monotonic()
        time.sleep(float(rest))
        return f"{begin} {time.monotonic()}"
    if word == "census":
        gc.collect()
        return str(len(TroublesomeEnvironment.living))
    if word == "pid":
        return str(os.getpid())
    if word == "modules":
        return str(rest in sys.modules)
    if word == "launch":
        return str(subprocess.Popen(["sleep", "60"]).pid)
    make_trouble(action)


def make_trouble(action: str) -> NoReturn:
    word, _, rest = action.partition(" ")
    if word == "hang":
        while True:
            time.sleep(0.01)
    if word == "die":
        os._exit(int(rest or 1))
    if word == "kill":
        os.kill(os.getpid(), signal.Signals[rest])
        time.sleep(60)
    raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "mumble": Unspeakable}.get(word, RuntimeError)(
        "the roof fell in\nand more"
    )


class Homesick(Troublesome):
    """Cannot be made in another process than that of its home."""

    home: int
    away: str

    @field_validator("away")
    @classmethod
    def _at_home(cls, away: str, info: Any) -> str:
        if os.getpid() != info.data["home"]:
            make_trouble(away)
        return away


class Forgetful(Troublesome):
    """Its config cannot say a walk of None."""

    walk: int | None = 3
