"""ALFWorld where the key of a state does not number things: equal keys hide different pasts."""

from __future__ import annotations

import re
from dataclasses import replace

from groupwise.data.records import Task
from groupwise.envs.alfworld.environment import Alfworld, AlfworldEnvironment
from groupwise.envs.environment import Observation

NUMBER = re.compile(r"(?<=[a-z]) \d+")


class Unnumbered(Alfworld, slot="env"):
    """The same games, texts and commands; `state_key` is the last text without the numbers of things.

    "On the cabinet 3, you see a mug 1." and "On the cabinet 4, you see a mug 2." have one key. What the agent reads
    keeps its numbers: it copies names from there into commands, and all methods go on from one start that does so.
    """

    def open(self, task: Task) -> AlfworldEnvironment:
        return _UnnumberedEnvironment(task, self)


class _UnnumberedEnvironment(AlfworldEnvironment):
    def _observe(self, text: str) -> Observation:
        return replace(super()._observe(text), state_key=remove_numbers(text))


def remove_numbers(text: str) -> str:
    """A text of the game without the numbers of things.

    >>> remove_numbers("On the cabinet 3, you see a mug 1, and a mug 2.")
    'On the cabinet, you see a mug, and a mug.'
    """
    return NUMBER.sub("", text)
