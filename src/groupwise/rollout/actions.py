"""Action rules: how the action that is sent to the environment is read out of a response."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from groupwise.parts.part import Part, Slot

_CHINESE = re.compile("[\u4e00-\u9fff]")

THOUGHT_TAGS = ("<think>", "</think>")
ACTION_TAGS = ("<action>", "</action>")
TAGS = (*THOUGHT_TAGS, *ACTION_TAGS)
"""What stands around a thought and around an action."""

Admissible = Sequence[str] | None
"""The actions that are possible, in the order in which a prompt lists them; None where they cannot be listed."""


class Action(NamedTuple):
    """What to do, and whether the response had the form that was asked for."""

    text: str
    well_formed: bool


class ActionRule(Protocol):
    """Reads an action out of a response, and knows how a response would say it."""

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        """The action in a response; `stopped` says whether the model ended it itself."""

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        """A response that says an action: `read` gives it back."""


class WholeResponse(Part, slot="action_rule"):
    """The whole response is the action; one that was cut off is malformed."""

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        return Action(text=text, well_formed=stopped and bool(text))

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return action


class Choice(Part, slot="action_rule"):
    """The response is the number of an action in the list that the prompt shows, counted from 1.

    It makes responses one token long and leaves no command to spell, so that small models can play. The prompt must
    list the actions with their numbers (`template.show_admissible = "numbered"`).
    """

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        """The action with that number; anything else is sent as it is, and is malformed."""
        listed, digits = admissible or (), text.lstrip("0")
        # It may be thousands of digits long, which Python refuses to read.
        is_number = text.isascii() and text.isdigit() and 0 < len(digits) <= len(str(len(listed)))
        number = int(digits) if is_number else 0
        if not 1 <= number <= len(listed):
            return Action(text=text, well_formed=False)
        return Action(text=listed[number - 1], well_formed=stopped)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        """The action's number; an action that is not listed is said as it is."""
        listed = admissible or ()
        return str(listed.index(action) + 1) if action in listed else action


class Tagged(Part, slot="action_rule"):
    """The action stands between action tags, after thoughts between think tags.

    Source: the rules of GiGPO's release (Feng et al. 2025, arXiv:2505.10978): the text is lower-cased; well formed only
    if both pairs of tags are there and it holds no Chinese characters; without an action tag the last `fallback`
    characters are sent. What the environment makes of the action is another matter: it may refuse a well-formed one.
    """

    fallback: Annotated[int, Field(ge=0)] = 30
    """How many last characters are sent where there is no action tag."""
    allows_chinese: bool = False
    """Whether a response that holds Chinese characters may be well formed; in the release it may not."""

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        lowered = text.lower()
        action = _find_between(lowered, *ACTION_TAGS)
        thought = _find_between(lowered, *THOUGHT_TAGS)
        if action is None:
            return Action(text=lowered[len(lowered) - min(self.fallback, len(lowered)) :].strip(), well_formed=False)
        in_language = self.allows_chinese or text.isascii() or not _CHINESE.search(text)
        return Action(text=action.strip(), well_formed=thought is not None and in_language)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return f"{''.join(THOUGHT_TAGS)}{action.join(ACTION_TAGS)}"


def _find_between(text: str, opening: str, closing: str) -> str | None:
    """Find what stands between the first opening tag and the first closing tag after it, or None.

    If no closing tag follows the first opening tag, none follows a later one: there is nothing to try again, as a
    regular expression would, at a price that grows with the square of a response that repeats its tag.
    """
    begin = text.find(opening)
    end = text.find(closing, begin + len(opening)) if begin >= 0 else -1
    return text[begin + len(opening) : end] if end >= 0 else None


ActionRuleSlot = Annotated[ActionRule, Slot("action_rule")]
