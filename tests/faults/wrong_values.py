"""An environment that hands over one wrong value, in the field and of the kind that its action names."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from groupwise import Part, Task
from groupwise.envs import Observation, Outcome

HALF = "half \ud83d"


class Touchy:
    """Hashable, but not to be compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    def __hash__(self) -> int:
        return 1


class Rude:
    """Not to be hashed, nor to be looked at."""

    def __hash__(self) -> int:
        raise RuntimeError("do not hash me")

    def __repr__(self) -> str:
        raise SystemExit("do not look at me")


class TouchyText(str):
    """Text that will not be compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    __hash__ = str.__hash__


def nest(depth: int) -> tuple[Any, ...]:
    """Tuples within tuples."""
    nested: tuple[Any, ...] = ()
    for _ in range(depth):
        nested = (nested,)
    return nested


WRONG: dict[str, tuple[str, Any]] = {
    "text, None": ("text", None),
    "text, bytes": ("text", b"a room"),
    "text, number": ("text", 7),
    "text, half": ("text", HALF),
    "text, list": ("text", ["a", "room"]),
    "goal, None": ("goal", None),
    "goal, bytes": ("goal", b"out"),
    "goal, half": ("goal", HALF),
    "admissible, text": ("admissible", "go"),
    "admissible, number": ("admissible", 3),
    "admissible, numbers": ("admissible", (1, 2)),
    "admissible, bytes": ("admissible", (b"go",)),
    "admissible, half": ("admissible", ("go", HALF)),
    "admissible, set": ("admissible", {"go"}),
    "admissible, array": ("admissible", np.array(["go"])),
    "key, list": ("state_key", ["a"]),
    "key, dict": ("state_key", {"a": 1}),
    "key, set": ("state_key", frozenset({"a", "b"})),
    "key, set inside": ("state_key", ("a", frozenset({"b"}))),
    "key, list inside": ("state_key", ("a", ["b"])),
    "key, bytes": ("state_key", b"a"),
    "key, half": ("state_key", HALF),
    "key, half inside": ("state_key", ("a", HALF)),
    "key, NaN": ("state_key", float("nan")),
    "key, NaN inside": ("state_key", ("a", float("nan"))),
    "key, infinity": ("state_key", float("inf")),
    "key, numpy NaN": ("state_key", np.float32("nan")),
    "key, complex": ("state_key", 1j),
    "key, huge": ("state_key", 10**400),
    "key, too huge to write": ("state_key", 10**6000),
    "key, array": ("state_key", np.zeros(2)),
    "key, long double": ("state_key", np.longdouble(1)),
    "key, date": ("state_key", np.datetime64("2026-01-01")),
    "key, object": ("state_key", object()),
    "key, function": ("state_key", nest),
    "key, touchy": ("state_key", Touchy()),
    "key, touchy inside": ("state_key", ("a", Touchy())),
    "key, rude": ("state_key", Rude()),
    "key, deep": ("state_key", nest(5000)),
    "key, long": ("state_key", "a" * 300_000),
    "key, many": ("state_key", (0,) * 300_000),
    "reward, None": ("reward", None),
    "reward, text": ("reward", "1.0"),
    "reward, complex": ("reward", 1j),
    "reward, NaN": ("reward", float("nan")),
    "reward, infinity": ("reward", float("-inf")),
    "reward, numpy NaN": ("reward", np.float64("nan")),
    "reward, huge": ("reward", 10**400),
    "reward, sentinel": ("reward", -1e300),
    "reward, array": ("reward", np.ones(2)),
    "reward, decimal": ("reward", Decimal("0.5")),
    "terminated, text": ("terminated", "False"),
    "terminated, None": ("terminated", None),
    "terminated, number": ("terminated", 1),
    "truncated, text": ("truncated", "no"),
    "truncated, array": ("truncated", np.zeros(2, dtype=bool)),
    "accepted, None": ("accepted", None),
    "accepted, text": ("accepted", "yes"),
    "success, NaN": ("success", float("nan")),
    "success, text": ("success", "True"),
    "success, number": ("success", 1),
    "success, float": ("success", 1.0),
    "note, None": ("note", None),
    "note, bytes": ("note", b"why"),
    "note, half": ("note", HALF),
    "observation, None": ("observation", None),
    "observation, dict": ("observation", {"text": "a room"}),
}
"""Field and value, by the action that brings it out. None of them may come further than the host."""

MENDED: dict[str, tuple[str, Any, Any]] = {
    "key, numpy integer": ("state_key", np.int64(7), 7),
    "key, numpy inside": ("state_key", ("a", np.float32(0.5), (np.bool_(True), np.str_("b"))), ("a", 0.5, (True, "b"))),
    "key, touchy text": ("state_key", TouchyText("a"), "a"),
    "key, None": ("state_key", None, None),
    "key, not ASCII": ("state_key", ("ß", "🙂"), ("ß", "🙂")),
    "key, minus zero": ("state_key", (-0.0, 1e-320, 2**70), (-0.0, 1e-320, 2**70)),
    "text, numpy": ("text", np.str_("a room"), "a room"),
    "admissible, list": ("admissible", ["go", np.str_("stay")], ("go", "stay")),
    "reward, numpy": ("reward", np.float32(0.5), 0.5),
    "reward, integer": ("reward", 1, 1.0),
    "reward, True": ("reward", True, 1.0),
    "reward, numpy True": ("reward", np.bool_(True), 1.0),
    "terminated, numpy": ("terminated", np.bool_(False), False),
    "accepted, numpy": ("accepted", np.bool_(False), False),
    "success, numpy": ("success", np.bool_(True), True),
    "note, long": ("note", "x" * 600, "x" * 499 + "…"),
}
"""Field, value, and the plain value that it becomes."""

SEEN = ("text", "goal", "admissible", "state_key")


class WrongValues(Part, slot="env"):
    """Hands over what its action asks for; "fine" is a good step."""

    max_steps: int = 100

    def task_set(self, split: str) -> tuple[Task, ...]:
        return tuple(Task.create(env="wrong", split=split, payload={"number": number}) for number in range(4))

    def open(self, task: Task) -> WrongEnvironment:
        return WrongEnvironment(task)

    def vocabulary(self) -> tuple[str, ...]:
        return ("fine",)

    def instruction(self) -> str:
        return "Be fine."


class WrongEnvironment:
    def __init__(self, task: Task) -> None:
        self.first = task.payload.get("first", "fine")
        self.advice = task.payload.get("advice", "fine")

    def observe(self) -> Observation:
        return outcome_of(self.first).observation

    def act(self, action: str) -> Outcome:
        if action == "raise half":
            raise RuntimeError(HALF)
        if action == "raise much":
            raise RuntimeError("x" * 10_000_000)
        if action == "raise colour":
            raise RuntimeError("\x1b[31mred\x1b[0m")
        return outcome_of(action)

    def expert(self) -> Any:
        return {"fine": "fine", "number": 5, "bytes": b"go", "half": HALF, "nothing": None}[self.advice]


def outcome_of(action: str) -> Outcome:
    fine = Outcome(observation=Observation(text="fine", state_key="fine", admissible=("fine",)), reward=0.0)
    if action == "fine":
        return fine
    field, value = WRONG[action] if action in WRONG else MENDED[action][:2]
    if field in SEEN:
        return replace(fine, observation=replace(fine.observation, **{field: value}))
    return replace(fine, **{field: value})
