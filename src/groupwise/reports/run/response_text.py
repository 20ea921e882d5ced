"""What a model said, as text: responses whole, or token by token, by the tokenizer of the run's last checkpoint."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groupwise.core.run_paths import TOKENIZER, RunPaths
from groupwise.core.text.secrets import redact

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer gives where the bytes of a character are not complete yet."""

MAX_TOKENS_OF_CHARACTER = 8
"""How many tokens a character may be waited for: what never becomes one is shown as it is."""

Decoder = Callable[[Sequence[int]], str]


def make_response_decoder(folder: Path) -> Decoder | None:
    """What turns sampled ids into text, without special tokens and space around it; None where nothing can."""
    tokenizer = _read_tokenizer(folder)

    def decode(ids: Sequence[int]) -> str:
        text = _try(lambda: tokenizer.decode(list(ids), skip_special_tokens=True))
        return "" if text is None else str(text).strip()

    return None if tokenizer is None else decode


class TokenTexts:
    """Cuts a response into the texts of its tokens; where a run has no tokenizer that can be read, it knows none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._decode: Decoder | None = None
        self._is_open = False

    def cut(self, ids: Sequence[int]) -> list[str] | None:
        """The text of each token, special ones too: joined, they are the response. None where nothing can tell.

        None also where the response holds a secret: cut into tokens, nobody would know it again to hide it.
        """
        if not self._is_open:
            self._decode, self._is_open = _make_whole_decoder(self._folder), True
        if self._decode is None:
            return None
        pieces = cut_text(ids, self._decode)
        whole = "".join(pieces)
        return pieces if redact(whole) == whole else None


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


def _make_whole_decoder(folder: Path) -> Decoder | None:
    tokenizer = _read_tokenizer(folder)

    def decode(ids: Sequence[int]) -> str:
        text = _try(lambda: tokenizer.decode(list(ids), skip_special_tokens=False))
        return "" if text is None else str(text)

    return None if tokenizer is None else decode


def _read_tokenizer(folder: Path) -> Any:
    """The tokenizer of a run's last checkpoint; None where it cannot be read."""
    paths = RunPaths(folder)
    try:
        latest = paths.latest.read_text(encoding="utf-8").strip()
        path = paths.checkpoints / Path(latest).name / TOKENIZER
        is_there = path.is_file()
    except (OSError, ValueError):  # a page is worth showing without it; `train --resume` says what is wrong
        return None
    if not is_there or importlib.util.find_spec("tokenizers") is None:
        return None
    from tokenizers import Tokenizer

    return _try(lambda: Tokenizer.from_file(str(path)))


def _try(call: Callable[[], Any]) -> Any:
    """What a call gives; None where it fails. A damaged file makes the tokenizer panic, which is no `Exception`."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
