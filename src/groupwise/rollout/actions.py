"""From what the model said to the action that is sent to the environment."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from groupwise.core.parts import Part, Slot


class Action(NamedTuple):
    """What to do, and whether the response had the form that was asked for."""

    text: str
    valid: bool


class ActionRule(Protocol):
    """Reads an action out of a response."""

    def read(self, text: str, stopped: bool) -> Action:
        """The action in a response; `stopped` says whether the model ended it itself."""


class WholeResponse(Part, slot="action_rule"):
    """The whole response is the action; one that was cut off is invalid."""

    def read(self, text: str, stopped: bool) -> Action:
        """The response itself."""
        return Action(text=text, valid=stopped and bool(text))


class Tagged(Part, slot="action_rule"):
    """The action stands between action tags, after thoughts between think tags.

    Source: the rules of GiGPO's release (Feng et al. 2025, arXiv:2505.10978): the text is lower-cased; valid only if
    both pairs of tags are there; without an action tag the last `fallback` characters are sent and the step is invalid.
    """

    fallback: Annotated[int, Field(ge=0)] = 30
    """How many last characters are sent where there is no action tag."""

    def read(self, text: str, stopped: bool) -> Action:
        """What stands between the action tags."""
        said = text.lower()
        action = re.search(r"<action>(.*?)</action>", said, re.DOTALL)
        thought = re.search(r"<think>.*?</think>", said, re.DOTALL)
        if action is None:
            return Action(text=said[len(said) - min(self.fallback, len(said)) :].strip(), valid=False)
        return Action(text=action[1].strip(), valid=thought is not None)


ActionRuleSlot = Annotated[ActionRule, Slot("action_rule")]
