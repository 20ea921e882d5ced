"""Loading and saving without the progress bars and the warnings of transformers and peft."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOT_OURS = (
    "`is_gradient_checkpointing` is deprecated",  # peft 0.21 reads it; transformers renamed it in 5.23
    "Cannot disable progress bars",  # HF_HUB_DISABLE_PROGRESS_BARS=0 keeps those of the hub
)
"""Beginnings of warnings that a user of groupwise cannot fix."""


@contextmanager
def quietly() -> Iterator[None]:
    """Switch progress bars off for a while; afterwards the user's setting is restored."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # public only by its documentation
        are_progress_bars_disabled,
        disable_progress_bars,
    )
    from transformers.utils import logging

    had_bars, hub_had_none = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    with warnings.catch_warnings():
        for beginning in NOT_OURS:
            warnings.filterwarnings("ignore", message=beginning)
        if had_bars:
            logging.disable_progress_bar()
        try:
            yield
        finally:
            if had_bars:
                logging.enable_progress_bar()  # those of the hub too
                if hub_had_none:
                    disable_progress_bars()


def save_model(model: Any, folder: Path, **options: Any) -> None:
    """Write a model, or only its adapter, in the Hugging Face layout, by `save_pretrained`."""
    with quietly():
        model.save_pretrained(folder, **options)
