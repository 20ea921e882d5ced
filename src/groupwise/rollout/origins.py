"""The origin of each token of a prompt: the environment, the template, the history in the prompt, the user.

A template is any function from texts to a text. So it is called twice: with the texts, and with marks around them. The
text between two marks has the origin of the marks; the rest is the template's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from groupwise.envs.environment import Observation
from groupwise.rollout.prompts import Exchange, Prompter, TemplateFile


class TokenOrigin(StrEnum):
    """The origin of a token of a prompt or response."""

    SYSTEM = "system"
    """The run's own system prompt (`rollout.system`)."""
    INSTRUCTION = "instruction"
    """The environment's instruction."""
    HINT = "hint"
    """The hint."""
    TASK = "task"
    """The goal of the task."""
    HISTORY = "history"
    """Past steps: observations and responses."""
    OBSERVATION = "observation"
    """The current observation, with the possible actions."""
    TEMPLATE = "template"
    """The words of the template, and the chat template around the turns."""
    RESPONSE = "response"
    """The response to the prompt."""


class AttributedIds(NamedTuple):
    """Token ids with their origins."""

    ids: tuple[int, ...]
    origins: tuple[TokenOrigin, ...]


ORIGINS = tuple(TokenOrigin)
FIRST_MARK, LAST_MARK = 0xF0000, 0xF00FF
"""Private-use characters of Unicode. The mark before a text is the first one plus the position of the text's origin in
`ORIGINS`; the mark after it is the last one."""

Mark = Callable[[TokenOrigin, str], str]
"""Puts marks around a text, or returns it unchanged."""


def attribute_prompt(
    prompter: Prompter, *, goal: str, past: Sequence[Exchange], seen: Observation, hint_text: str = ""
) -> AttributedIds:
    """The tokens of a prompt, as `Prompter.prompt` makes it, with their origins."""
    made = prompter.make_prompts([(prompter.encode_opening(goal, hint_text), past, seen)])[0]
    shown = past[len(past) - made.num_shown :]
    frame, template = prompter.frame, prompter.template

    def write_opening(mark: Mark) -> str:
        opening = template.write_opening(
            mark(TokenOrigin.INSTRUCTION, prompter.instruction),
            mark(TokenOrigin.TASK, goal),
            mark(TokenOrigin.HINT, hint_text),
        )
        return f"{opening}\n" if opening else ""

    def mark_seen(mark: Mark) -> Observation:
        admissible = seen.admissible and tuple(mark(TokenOrigin.OBSERVATION, action) for action in seen.admissible)
        return replace(seen, text=mark(TokenOrigin.OBSERVATION, seen.text), admissible=admissible)

    def write_message(mark: Mark, shown_now: Observation) -> str:
        told = [
            (mark(TokenOrigin.HISTORY, exchange.in_words[0]), mark(TokenOrigin.HISTORY, exchange.in_words[1]))
            for exchange in shown
        ]
        return template.write_step(told, shown_now, num_past=len(past))

    def write_whole(mark: Mark) -> str:
        message = write_message(mark, replace(mark_seen(mark), goal=mark(TokenOrigin.TASK, goal)))
        return prompter.render_message(write_opening(mark) + message, mark(TokenOrigin.SYSTEM, prompter.system))

    if isinstance(template, TemplateFile):
        pieces = [_make_one_origin(frame.start, TokenOrigin.TEMPLATE), _attribute_text(prompter, write_whole)]
    else:
        pieces = [_attribute_frame_opening(prompter), _attribute_text(prompter, write_opening)]
        for exchange in () if template.is_one_message else shown:
            closing = () if exchange.response_ids[-1:] == (frame.end_id,) else (frame.end_id,)
            pieces += [
                _make_one_origin(exchange.observation_ids, TokenOrigin.HISTORY),
                _make_one_origin(frame.before_past_response, TokenOrigin.TEMPLATE),
                _make_one_origin(exchange.response_ids, TokenOrigin.HISTORY),
                _make_one_origin((*closing, *frame.between), TokenOrigin.TEMPLATE),
            ]
        if template.is_one_message:
            pieces.append(_attribute_text(prompter, lambda mark: write_message(mark, mark_seen(mark))))
        else:
            pieces.append(_attribute_text(prompter, lambda mark: template.write_observation(mark_seen(mark))))
        pieces.append(_make_one_origin(frame.before_response, TokenOrigin.TEMPLATE))
    ids = tuple(token for piece in pieces for token in piece.ids)
    origins = tuple(origin for piece in pieces for origin in piece.origins)
    kept = slice(len(ids) - len(made.ids), None)  # the limit on prompts cuts on the left
    return AttributedIds(ids[kept], origins[kept])


def _attribute_frame_opening(prompter: Prompter) -> AttributedIds:
    """The text before the first turn: that of the chat template, with the run's system prompt in it."""
    frame, system = prompter.frame, prompter.system.strip()
    before, _, after = frame.opening_text.partition(system) if system else (frame.opening_text, "", "")
    origins = [TokenOrigin.TEMPLATE] * len(before) + [TokenOrigin.SYSTEM] * len(system)
    origins += [TokenOrigin.TEMPLATE] * len(after)
    attributed = _attribute_characters(prompter, frame.opening_text, origins)
    unsaid = len(frame.opening) - len(attributed.ids)  # a start token without text
    return AttributedIds(frame.opening, (TokenOrigin.TEMPLATE,) * unsaid + attributed.origins)


def _make_one_origin(ids: Sequence[int], origin: TokenOrigin) -> AttributedIds:
    return AttributedIds(tuple(ids), (origin,) * len(ids))


def _attribute_text(prompter: Prompter, write: Callable[[Mark], str]) -> AttributedIds:
    """The ids of a text from a template. If the template changes marked text, all of it counts as the template's."""
    text, marked = write(lambda _, part: part), write(_mark)
    said, origins = _read_marks(marked)
    if said != text:
        origins = [TokenOrigin.TEMPLATE] * len(text)
    return _attribute_characters(prompter, text, origins)


def _mark(origin: TokenOrigin, text: str) -> str:
    """A text with marks around it; an empty text stays empty, because a template may test for it."""
    return f"{chr(FIRST_MARK + ORIGINS.index(origin))}{text}{chr(LAST_MARK)}" if text else text


def _read_marks(marked: str) -> tuple[str, list[TokenOrigin]]:
    """A text without its marks, and the origin of each character."""
    said, origins, current = [], [], TokenOrigin.TEMPLATE
    for character in marked:
        code = ord(character)
        if FIRST_MARK <= code < FIRST_MARK + len(ORIGINS):
            current = ORIGINS[code - FIRST_MARK]
        elif code == LAST_MARK:
            current = TokenOrigin.TEMPLATE
        else:
            said.append(character)
            origins.append(current)
    return "".join(said), origins


def _attribute_characters(prompter: Prompter, text: str, origins: Sequence[TokenOrigin]) -> AttributedIds:
    """The ids of a text with known origins of characters; a token has the origin of its first visible character."""
    ids, found = prompter.encode(text), []
    for begin, end in _locate_tokens(prompter, text, ids):
        place = next((place for place in range(begin, end) if not text[place].isspace()), begin)
        found.append(origins[place] if place < len(origins) else TokenOrigin.TEMPLATE)
    return AttributedIds(ids, tuple(found))


def _locate_tokens(prompter: Prompter, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    if getattr(prompter.tokenizer, "is_fast", False):
        encoding = prompter.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return [(begin, end) for begin, end in encoding["offset_mapping"]]
    # A slow tokenizer gives no offsets: its decoded tokens are taken one after the other.
    lengths = [len(prompter.tokenizer.decode([token], skip_special_tokens=False)) for token in ids]
    ends = [min(end, len(text)) for end in accumulate(lengths)]
    return list(zip([0, *ends], ends, strict=False))
