"""What the model said, from the ids it sampled: with the tokenizer that the run's last checkpoint holds."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groupwise.core.run_folder import TOKENIZER, RunPaths


def response_decoder(folder: Path) -> Callable[[Sequence[int]], str] | None:
    """Turns sampled ids into text; None where the run keeps no tokenizer, or nothing here can read one."""
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

    tokenizer = _attempt(lambda: Tokenizer.from_file(str(path)))

    def decode(ids: Sequence[int]) -> str:
        found = _attempt(lambda: tokenizer.decode(list(ids), skip_special_tokens=True))
        return "" if found is None else str(found).strip()

    return None if tokenizer is None else decode


def _attempt(call: Callable[[], Any]) -> Any:
    """What a call gives; None where it fails. A damaged file makes the tokenizer panic, which is no `Exception`."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
