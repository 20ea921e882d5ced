"""What a model said, as text: responses whole, or token by token, by the tokenizer of the run's last checkpoint."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groupwise.core.run_paths import TOKENIZER, RunPaths
from groupwise.core.text.secrets import redact
from groupwise.core.text.token_texts import Decoder, cut_text


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
