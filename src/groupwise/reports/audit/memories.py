"""What memories cost: tokens without and with shared prefixes, as recorded and under other memories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from groupwise.recordings.row import Id
from groupwise.reports.audit.recorded_tokens import (
    WIDTH,
    RecordedStep,
    RecordedTokens,
    count_distinct_tokens,
    find_common_end,
)
from groupwise.reports.audit.turns import CharacterFit, Opening, Turns, cut_prompts, find_openings
from groupwise.rollout.prompts.memory import Memory

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
