"""The text of each token of a sequence, so that the texts joined are what the sequence says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer gives where the bytes of a character are not complete yet."""

MAX_TOKENS_OF_CHARACTER = 8
"""How many tokens a character may be waited for: what never becomes one is shown as it is."""

Decoder = Callable[[Sequence[int]], str]
"""What a sequence of ids says."""


def cut_text(ids: Sequence[int], decode: Decoder) -> list[str]:
    """The text that each token adds to those before it.

    A token by itself may decode to something else than in its place: some begin with a space only after another, and a
    character may be made of several tokens; then the last of them has it. Only a few tokens are decoded at a time.

    >>> cut_text([1, 2], {(): "", (1,): "a", (1, 2): "a b", (2,): "b"}.__getitem__)
    ['a', ' b']
    """
    pieces: list[str] = []
    begin = done = 0  # what is decoded begins a finished piece early, so that a token is never the first
    for end in range(1, len(ids) + 1):
        known, longer = decode(tuple(ids[begin:done])), decode(tuple(ids[begin:end]))
        if longer.endswith(UNFINISHED) and end < len(ids) and end - done < MAX_TOKENS_OF_CHARACTER:
            pieces.append("")
        else:
            pieces.append(longer[len(known) :])
            begin, done = done, end
    return pieces
