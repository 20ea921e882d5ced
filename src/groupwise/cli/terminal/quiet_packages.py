"""What packages say when they are imported, which is nothing to whoever trains."""

from __future__ import annotations

import logging

CHATTY = ("torchao", "torch.utils._pytree", "bitsandbytes")
"""Loggers of packages that transformers and peft import wherever they are installed, whether a run uses them or not:
they warn of libraries for other machines that could not be loaded, and torch of how torchao registers itself."""


def quiet_packages() -> None:
    """Let these packages tell of errors only."""
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
