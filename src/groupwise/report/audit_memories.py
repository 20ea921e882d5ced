"""What memories cost: tokens without and with shared prefixes, as recorded and under other memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.report.audit_tokens import (
    WIDTH,
    RecordedStep,
    RecordedTokens,
    count_common_prefix,
    count_common_suffix,
    count_distinct_tokens,
    find_common_end,
)
from groupwise.rollout.prompts import Memory
from groupwise.store.rollout_rows import Id

NO_IDS = "No prompts and responses were recorded as token ids, so that tokens cannot be counted."
NO_DIALOGUE = (
    "The recorded prompts do not go on after the responses before them (each is one message, or the past is told in "
    "other words), so that the prompts of other memories cannot be put together from them."
)
ESTIMATED = (
    "~ estimated: where an opening ends cannot be seen in prompts that all show the first step; it was told from the "
    "lengths of the observations' texts."
)
INEXACT = "~ estimated: put together again, {wrong} of {prompts} recorded prompts come out different."
SAME_STEPS = "The steps are those recorded; with another memory the agent might have taken others."


@dataclass(frozen=True, kw_only=True)
class MemoryLine:
    """The tokens of the recorded steps under one memory."""

    memory: str
    """The memory as a run file would have it; `as recorded` for the prompts of the file."""
    raw_tokens: int
    """Tokens of all prompts and responses: what is computed without sharing."""
    computed_tokens: int
    """Distinct prefixes within each group: what is computed where they are shared."""
    longest: int
    """Tokens of the longest prompt with its response."""
    ratio: float
    """How often a token is computed without sharing; 1 where there is none."""
    is_exact: bool
    """Whether every prompt was recorded, or put together from recorded tokens to the last one."""


@dataclass(frozen=True, kw_only=True)
class MemoryCosts:
    """Memories side by side, over the same attempts."""

    groups: int
    """Groups that were counted, from the first ones of the file."""
    attempts: int
    """Attempts that were counted."""
    left_out: int
    """Attempts of these groups whose tokens are not all there, or do not make a dialogue."""
    lines: list[MemoryLine]
    """The prompts as recorded, then each memory."""
    notes: list[str]
    """What could not be counted, and what is an estimate."""


def count_memory_costs(recorded: RecordedTokens, memories: Mapping[str, Memory]) -> MemoryCosts:
    """Count the tokens of recorded steps, as they are and as each memory would have them.

    Sharing is counted within a group: attempts at one task. What all tasks begin with is shared in an update too, once.

    Args:
        recorded: tokens of the groups to count.
        memories: by the name to show.
    """
    whole = recorded.list_whole_attempts()
    if not whole:
        return MemoryCosts(groups=0, attempts=0, left_out=recorded.num_attempts, lines=[], notes=[NO_IDS])
    end = find_common_end(step.response for steps in _walk_attempts(whole) for step in steps if not step.is_cut)
    pieces = {
        scope: [turns for steps in attempts if (turns := cut_prompts(steps, end))] for scope, attempts in whole.items()
    }
    # Attempts of one step have nothing to cut; where little else is left they would speak for all.
    if 2 * sum(map(len, pieces.values())) < sum(map(len, whole.values())):
        return _make_costs(recorded, whole, [_count_recorded(whole)], [NO_DIALOGUE])
    prompts = RebuiltPrompts([attempts for attempts in pieces.values() if attempts])
    kept = {scope: [attempt.steps for attempt in attempts] for scope, attempts in pieces.items() if attempts}
    lines = [_count_recorded(kept), *(prompts.count_tokens(name, memory) for name, memory in memories.items())]
    return _make_costs(recorded, kept, lines, prompts.write_notes(lines))


class RebuiltPrompts:
    """Recorded attempts in pieces, and prompts put together from them."""

    def __init__(self, groups: Sequence[Sequence[Turns]]) -> None:
        characters = CharacterFit([attempt for attempts in groups for attempt in attempts])
        self._groups = [(attempts, find_openings(attempts, characters)) for attempts in groups]
        checks = [
            known[attempt.first].prompt(attempt, step, shown) == attempt.steps[step].prompt
            for attempts, known in self._groups
            for attempt in attempts
            for step, shown in enumerate(attempt.first_shown)
        ]
        self.num_prompts = len(checks)
        """Recorded prompts."""
        self.num_wrong = len(checks) - sum(checks)
        """Recorded prompts that come out different when put together again."""

    def count_tokens(self, name: str, memory: Memory) -> MemoryLine:
        """The tokens under a memory."""
        # One group at a time is held.
        samples = (self._make_samples(attempts, known, memory) for attempts, known in self._groups)
        is_seen = all(
            not known[attempt.first].is_estimated or memory.first_shown(len(attempt.steps) - 1) == 0
            for attempts, known in self._groups
            for attempt in attempts
        )
        return _count_tokens(name, samples, is_exact=is_seen and not self.num_wrong)

    def write_notes(self, lines: Iterable[MemoryLine]) -> list[str]:
        """What is estimated, and what no count can say."""
        notes = [INEXACT.format(wrong=self.num_wrong, prompts=self.num_prompts)] if self.num_wrong else []
        if not self.num_wrong and not all(line.is_exact for line in lines):
            notes.append(ESTIMATED)
        return [*notes, SAME_STEPS]

    @staticmethod
    def _make_samples(attempts: Sequence[Turns], known: Mapping[bytes, Opening], memory: Memory) -> list[bytes]:
        return [
            known[attempt.first].prompt(attempt, number, memory.first_shown(number)) + step.response
            for attempt in attempts
            for number, step in enumerate(attempt.steps)
        ]


def _count_recorded(groups: Mapping[Id, Sequence[Sequence[RecordedStep]]]) -> MemoryLine:
    samples = ([step.prompt + step.response for steps in group for step in steps] for group in groups.values())
    return _count_tokens("as recorded", samples, is_exact=True)


def _count_tokens(name: str, groups: Iterable[Sequence[bytes]], *, is_exact: bool) -> MemoryLine:
    raw = computed = longest = 0
    for samples in groups:
        raw += sum(map(len, samples)) // WIDTH
        computed += count_distinct_tokens(samples)
        longest = max(longest, *(len(sample) // WIDTH for sample in samples))
    return MemoryLine(
        memory=name,
        raw_tokens=raw,
        computed_tokens=computed,
        longest=longest,
        ratio=raw / computed if computed else 1.0,
        is_exact=is_exact,
    )


def _make_costs(
    recorded: RecordedTokens,
    counted: Mapping[Id, Sequence[Sequence[RecordedStep]]],
    lines: list[MemoryLine],
    notes: list[str],
) -> MemoryCosts:
    attempts = sum(map(len, counted.values()))
    return MemoryCosts(
        groups=len(counted),
        attempts=attempts,
        left_out=recorded.num_attempts - attempts,
        lines=lines,
        notes=notes,
    )


def _walk_attempts(groups: Mapping[Id, Sequence[Sequence[RecordedStep]]]) -> Iterable[Sequence[RecordedStep]]:
    return (steps for attempts in groups.values() for steps in attempts)


# Recorded prompts cut into turns, so that the prompts of another memory can be put together from the pieces.
#
# A prompt of a dialogue is an opening, past turns with their responses, and the present turn:
#
#     opening  turn f  response f  turn f+1  response f+1  ...  turn t
#
# Each prompt goes on after the response before it, so what a step's turn added is what follows that response. Only
# where the opening ends is not to be seen as long as the first turn follows it; a prompt that left the first turn out
# shows it.


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
