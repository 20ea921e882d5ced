"""Action parsers: they read the action for the environment from a response."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from groupwise.parts.part import Part, Slot

_CHINESE = re.compile("[\u4e00-\u9fff]")

THOUGHT_TAGS = ("<think>", "</think>")
ACTION_TAGS = ("<action>", "</action>")
TAGS = (*THOUGHT_TAGS, *ACTION_TAGS)
"""The tags around a thought and around an action."""

Admissible = Sequence[str] | None
"""The possible actions, in the order in which a prompt lists them; None if they cannot be listed."""


class Action(NamedTuple):
    """An action, and whether the response had the required format."""

    text: str
    well_formed: bool


class ActionParser(Protocol):
    """Reads an action from a response, and writes a response for an action."""

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        """The action in a response; `stopped` = the model ended the response itself."""

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        """A response from which `read` gets this action."""


class WholeResponse(Part, slot="action_parser"):
    """The whole response is the action. A response that was cut off is malformed."""

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        return Action(text=text, well_formed=stopped and bool(text))

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return action


class Choice(Part, slot="action_parser"):
    """The response is the number of an action in the list that the prompt shows, counted from 1.

    Responses are one token long, so that small models can act. The prompt must list the actions with their numbers
    (`template.show_admissible = "numbered"`).
    """

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        """The action with that number; any other text is sent unchanged, and is malformed."""
        listed, digits = admissible or (), text.lstrip("0")
        # Python does not read numbers with thousands of digits.
        is_number = text.isascii() and text.isdigit() and 0 < len(digits) <= len(str(len(listed)))
        number = int(digits) if is_number else 0
        if not 1 <= number <= len(listed):
            return Action(text=text, well_formed=False)
        return Action(text=listed[number - 1], well_formed=stopped)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        """The action's number; an action that is not listed is written as it is."""
        listed = admissible or ()
        return str(listed.index(action) + 1) if action in listed else action


class Tagged(Part, slot="action_parser"):
    """The action is between action tags, after thoughts between think tags.

    Source: the rules of GiGPO's release (Feng et al. 2025, arXiv:2505.10978). The text is lower-cased. It is well
    formed only if it has both pairs of tags and no Chinese characters. Without an action tag, the last `fallback`
    characters are sent. The environment may still reject a well-formed action.

    Choices: a pair is an opening tag and the first closing tag after it, in any case. `reference` reads as the release:
    think tags must be lower-case and may be in any order, the action ends at the first closing tag of the whole text,
    and the last characters keep their white space.
    """

    fallback: Annotated[int, Field(ge=0)] = 30
    """How many last characters are sent if there is no action tag."""
    allows_chinese: bool = False
    """Whether a response with Chinese characters may be well formed; in the release it may not."""
    reference: bool = False
    """Whether responses are read exactly as in the release."""

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        lowered = text.lower()
        action = (_find_released if self.reference else _find_between)(lowered, *ACTION_TAGS)
        if action is None:
            tail = lowered[len(lowered) - min(self.fallback, len(lowered)) :]
            return Action(text=tail if self.reference else tail.strip(), well_formed=False)
        if self.reference:
            has_thought = all(tag in text for tag in THOUGHT_TAGS)
        else:
            has_thought = _find_between(lowered, *THOUGHT_TAGS) is not None
        in_language = self.allows_chinese or text.isascii() or not _CHINESE.search(text)
        return Action(text=action.strip(), well_formed=has_thought and in_language)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return f"{''.join(THOUGHT_TAGS)}{action.join(ACTION_TAGS)}"


def _find_between(text: str, opening: str, closing: str) -> str | None:
    """The text between the first opening tag and the first closing tag after it, or None.

    If no closing tag follows the first opening tag, none follows a later one. A regular expression would try again, in
    a time that is quadratic for a response that repeats its tag.
    """
    begin = text.find(opening)
    end = text.find(closing, begin + len(opening)) if begin >= 0 else -1
    return text[begin + len(opening) : end] if end >= 0 else None


def _find_released(text: str, opening: str, closing: str) -> str | None:
    """The text between the first opening tag and the first closing tag of the whole text, or None without one of them.

    It is empty if the closing tag is the first of the two.
    """
    begin, end = text.find(opening), text.find(closing)
    return text[begin + len(opening) : end] if begin >= 0 and end >= 0 else None


@dataclass(frozen=True)
class ContinuedThought:
    """Reads tagged responses to prompts that end with an opened thought: the tag of the prompt counts."""

    parser: ActionParser
    opened: str
    """The tag at the end of the prompt."""

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        return self.parser.read(self.opened + text, stopped=stopped, admissible=admissible)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return self.parser.say(action, admissible=admissible).removeprefix(self.opened)


def continue_thought(parser: ActionParser, opened: str) -> ActionParser:
    """The parser for responses to prompts that end with this opened tag; empty = they end with none."""
    return ContinuedThought(parser, opened) if opened == THOUGHT_TAGS[0] and isinstance(parser, Tagged) else parser


ActionParserSlot = Annotated[ActionParser, Slot("action_parser")]
