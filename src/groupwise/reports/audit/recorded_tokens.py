"""The tokens of recorded steps, group by group: as many whole groups as fit into a bounded memory.

Token ids are held as bytes, eight to a token: comparing, searching and sorting them then costs what memcmp does.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.core.errors import RecordError
from groupwise.recordings.row import Id, Row

WIDTH = 8
"""Bytes of a token."""
MAX_TOKENS = 2_000_000
"""Tokens after which no further group is taken; those that were taken are kept whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedStep:
    """What a step's engine was given and what it sampled."""

    index: int
    """Position of the step in its attempt."""
    prompt: bytes
    """Tokens of the prompt."""
    response: bytes
    """Tokens of the response."""
    is_cut: bool
    """Whether the response is known to have been cut off."""
    characters: int | None
    """Length of the observation's text; None = it was not recorded."""


class RecordedTokens:
    """Looks at the rows of a file as they pass, and keeps the tokens of its first groups."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self.max_tokens = max_tokens
        """Tokens after which no further group is taken."""
        self.groups: dict[Id, dict[Id, list[RecordedStep]]] = {}
        """Steps by group and attempt, as they came."""
        self.without_ids: set[tuple[Id, Id]] = set()
        """Attempts, by group, with a step whose tokens cannot be told."""
        self._num_tokens = 0

    def add(self, row: Row) -> None:
        """Look at one row."""
        scope, attempt = row.get("group", row["task"]), row["attempt"]
        if scope not in self.groups:
            if self._num_tokens >= self.max_tokens:
                return
            self.groups[scope] = {}
        steps = self.groups[scope].setdefault(attempt, [])
        # A segment is a piece of a step, not what the engine was given.
        if "prompt_ids" not in row or "response_ids" not in row or row.get("segment"):
            self.without_ids.add((scope, attempt))
            return
        text = row.get("observation")
        step = RecordedStep(
            index=row["index"],
            prompt=_pack_ids(row["prompt_ids"], row),
            response=_pack_ids(row["response_ids"], row),
            is_cut=row.get("cut", False),
            characters=None if text is None else len(text),
        )
        steps.append(step)
        self._num_tokens += (len(step.prompt) + len(step.response)) // WIDTH

    def list_whole_attempts(self) -> dict[Id, list[list[RecordedStep]]]:
        """The attempts of each group of which every step is there with its tokens, steps in order."""
        by_group: dict[Id, list[list[RecordedStep]]] = {}
        for scope, attempts in self.groups.items():
            kept = [
                sorted(steps, key=lambda step: step.index)
                for attempt, steps in attempts.items()
                if (scope, attempt) not in self.without_ids
            ]
            whole = [steps for steps in kept if [step.index for step in steps] == list(range(len(steps)))]
            if whole:
                by_group[scope] = whole
        return by_group

    @property
    def num_attempts(self) -> int:
        """Attempts of the groups that were taken, whole or not."""
        return sum(map(len, self.groups.values()))


def count_distinct_tokens(sequences: Iterable[bytes]) -> int:
    """Nodes of the prefix forest of token sequences: what an update computes where equal prefixes are shared.

    Sorted, a sequence first repeats what it shares with the one before it and then goes on alone.
    """
    before, count = b"", 0
    for sequence in sorted(sequences):
        count += len(sequence) // WIDTH - count_common_prefix(before, sequence)
        before = sequence
    return count


def count_common_prefix(first: bytes, second: bytes) -> int:
    """How many tokens two sequences begin with alike."""
    length = min(len(first), len(second)) // WIDTH
    same = np.frombuffer(first, np.int64, length) == np.frombuffer(second, np.int64, length)
    return length if same.all() else int(np.argmin(same))


def count_common_suffix(first: bytes, second: bytes) -> int:
    """How many tokens two sequences end with alike."""
    length = min(len(first), len(second)) // WIDTH
    ends = [np.frombuffer(tokens[len(tokens) - length * WIDTH :], np.int64)[::-1] for tokens in (first, second)]
    same = ends[0] == ends[1]
    return length if same.all() else int(np.argmin(same))


def find_common_end(sequences: Iterable[bytes]) -> bytes:
    """The token that most sequences end with; nothing where all are empty."""
    counts = Counter(sequence[-WIDTH:] for sequence in sequences if sequence)
    return counts.most_common(1)[0][0] if counts else b""


def _pack_ids(ids: Sequence[int], row: Row) -> bytes:
    try:
        return array("q", ids).tobytes()
    except OverflowError:
        raise RecordError(
            f"task {row['task']!r}, attempt {row['attempt']!r}, step {row['index']}: a token id has more than 64 bits; "
            "record the ids that the tokenizer gave"
        ) from None
