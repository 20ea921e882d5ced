"""Recorded prompts cut into turns, so that the prompts of another memory can be put together from the pieces.

A prompt of a dialogue is an opening, past turns with their responses, and the present turn:

    opening  turn f  response f  turn f+1  response f+1  ...  turn t

Each prompt goes on after the response before it, so what a step's turn added is what follows that response. Only where
the opening ends is not to be seen as long as the first turn follows it; a prompt that left the first turn out shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.reports.audit.recorded_tokens import WIDTH, RecordedStep, count_common_prefix, count_common_suffix


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """An attempt's prompts in pieces.

    Worked example: prompts [1, 2, 3] and [1, 2, 3, 8, 9, 4] with the responses [8, 9] and [7, 9] have the first prompt
    [1, 2, 3], the turns [] and [4], and the past of step 1 begins at step 0.
    """

    steps: Sequence[RecordedStep]
    """The recorded steps."""
    turns: Sequence[bytes]
    """What each step's prompt adds after the response before it; nothing at step 0."""
    closed: Sequence[bytes]
    """Each response as later prompts show it: with the end token, also where it was cut off."""
    first_shown: Sequence[int]
    """The earliest past step that each recorded prompt shows."""

    @property
    def first(self) -> bytes:
        """The first prompt: the opening and the first turn."""
        return self.steps[0].prompt

    def past(self, step: int, first_shown: int) -> bytes:
        """All of a step's prompt after the turn that is shown first."""
        return b"".join(self.closed[s] + self.turns[s + 1] for s in range(first_shown, step))

    def before_past(self, step: int) -> bytes:
        """All of a recorded prompt up to the response that is shown first: the opening and one turn."""
        prompt = self.steps[step].prompt
        return prompt[: len(prompt) - len(self.past(step, self.first_shown[step]))]


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """Where the openings of attempts that begin alike end."""

    length: int
    """Bytes of the first prompt that a prompt without the first turn begins with."""
    lead: int
    """Bytes at the head of each turn that it loses where it follows the opening."""
    is_estimated: bool
    """Whether the length was told from the observations' texts."""

    def prompt(self, attempt: Turns, step: int, first_shown: int) -> bytes:
        """The prompt of a step that shows its past from a step on."""
        past = attempt.past(step, first_shown)
        if first_shown == 0:
            return attempt.first + past
        return attempt.first[: self.length] + attempt.turns[first_shown][self.lead :] + past


def cut_prompts(steps: Sequence[RecordedStep], end: bytes) -> Turns | None:
    """Cut an attempt's prompts; None where one does not go on after the response before it.

    Args:
        steps: the steps of the attempt, in order.
        end: the token that ends a response.
    """
    turns, closed, first_shown = [b""], list[bytes](), [0]
    for number in range(1, len(steps)):
        before = steps[number - 1]
        turn = _find_turn(steps[number].prompt, before)
        if turn is None:
            return None
        response = before.response
        if end and not response.endswith(end) and turn.startswith(end):  # a response that was cut off is closed for it
            response, turn = response + end, turn[WIDTH:]
        turns.append(turn)
        closed.append(response)
        first_shown.append(_find_first_shown(steps[number].prompt, turns, closed))
    return Turns(steps=steps, turns=turns, closed=[*closed, steps[-1].response], first_shown=first_shown)


def find_openings(attempts: Sequence[Turns], characters: CharacterFit) -> dict[bytes, Opening]:
    """The opening of each first prompt; told from texts where no prompt shows where it ends."""
    by_first_prompt: dict[bytes, Opening] = {}
    for first in dict.fromkeys(attempt.first for attempt in attempts):
        alike = [attempt for attempt in attempts if attempt.first == first]
        by_first_prompt[first] = _find_opening(first, alike) or Opening(
            length=max(len(first) - WIDTH * characters.tokens(alike[0].steps[0].characters), 0),
            lead=0,  # what leads a turn is counted to it here, and so is missing from the opening
            is_estimated=True,
        )
    return by_first_prompt


class CharacterFit:
    """How many tokens a turn has, from the length of its observation's text: a line through what was recorded."""

    def __init__(self, attempts: Sequence[Turns]) -> None:
        pairs = [
            (step.characters, len(turn) // WIDTH)
            for attempt in attempts
            for step, turn in zip(attempt.steps[1:], attempt.turns[1:], strict=True)
        ]
        self._mean = float(np.mean([tokens for _, tokens in pairs])) if pairs else 0.0
        recorded = np.array([pair for pair in pairs if pair[0] is not None], dtype=np.float64).reshape(-1, 2)
        self._line: tuple[float, float] | None = None
        if len(np.unique(recorded[:, 0])) > 1:
            slope, offset = np.polyfit(recorded[:, 0], recorded[:, 1], 1)
            self._line = float(slope), float(offset)

    def tokens(self, characters: int | None) -> int:
        """Tokens of a turn, its frame included; the mean where texts say nothing."""
        if self._line is None or characters is None:
            return round(self._mean)
        return max(round(self._line[0] * characters + self._line[1]), 0)


def _find_opening(first: bytes, attempts: Sequence[Turns]) -> Opening | None:
    """The opening, where recorded prompts show its end: those that left the first turn out."""
    heads = [
        (attempt.before_past(step), attempt.turns[shown])
        for attempt in attempts
        for step, shown in enumerate(attempt.first_shown)
        if shown > 0
    ]
    if not heads:
        return None
    # What such a prompt has in common with the turn's end is the turn, and perhaps what stands before both.
    shortest = max(len(head) // WIDTH - count_common_suffix(head, turn) for head, turn in heads)
    if shortest > min(count_common_prefix(head, first) for head, _ in heads):
        return None
    length = shortest * WIDTH
    leads = Counter(len(turn) - (len(head) - length) for head, turn in heads)
    return Opening(length=length, lead=max(leads.most_common(1)[0][0], 0), is_estimated=False)


def _find_turn(prompt: bytes, before: RecordedStep) -> bytes | None:
    """What a prompt adds after the response of the step before; None where it does not show that response."""
    whole = before.prompt + before.response
    if prompt.startswith(whole):
        return prompt[len(whole) :]
    # The response may also stand there by chance: it is the place where the prompt before it stands too.
    places = [
        (count_common_suffix(prompt[:place], before.prompt), place) for place in _find_places(prompt, before.response)
    ]
    if not places or max(places)[0] == 0:
        return None
    return prompt[max(places)[1] + len(before.response) :]


def _find_places(prompt: bytes, response: bytes) -> Iterator[int]:
    place = prompt.find(response) if response else -1
    while place >= 0:
        if place % WIDTH == 0:
            yield place
        place = prompt.find(response, place + 1)


def _find_first_shown(prompt: bytes, turns: Sequence[bytes], closed: Sequence[bytes]) -> int:
    """The earliest step from which on a prompt holds every response and turn."""
    earliest, past = len(closed), b""
    while earliest:
        longer = closed[earliest - 1] + turns[earliest] + past
        if not prompt.endswith(longer):
            break
        earliest, past = earliest - 1, longer
    return earliest
