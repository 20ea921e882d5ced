"""Loading and saving without the progress bars and the warnings that transformers and peft print meanwhile."""

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
"""How warnings begin that a user of groupwise can do nothing about."""


@contextmanager
def quietly() -> Iterator[None]:
    """Switch progress bars off for a while; afterwards they are as the user has set them."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # it says so in its documentation alone
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
    """Write a model, or its adapter alone, in the Hugging Face layout.

    Args:
        model: Of transformers or peft.
        folder: Where to.
        options: Of `save_pretrained`.
    """
    with quietly():
        model.save_pretrained(folder, **options)
