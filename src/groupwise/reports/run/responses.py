"""What the model said, from the ids it sampled: with the tokenizer that the run's last checkpoint holds."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path


def response_decoder(folder: Path) -> Callable[[Sequence[int]], str] | None:
    """Turns sampled ids into text; None where the run keeps no tokenizer, or nothing here can read one."""
    checkpoints = folder / "checkpoints"
    try:
        latest = (checkpoints / "latest").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    path = checkpoints / latest / "tokenizer.json"
    if not path.is_file() or importlib.util.find_spec("tokenizers") is None:
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
