"""A run with an observer, under the names of this checkout and of an older one that it is measured against."""

from __future__ import annotations

from typing import Any

try:
    from groupwise.training.observer import Observer, Observers

    KEYWORD = "observers"
except ModuleNotFoundError:
    from groupwise.training.watcher import Watcher as Observer  # type: ignore[import-not-found, no-redef]
    from groupwise.training.watcher import Watchers as Observers  # type: ignore[no-redef]

    KEYWORD = "watchers"

__all__ = ["Observer", "Observers", "train_observed"]


def train_observed(run: Any, observer: Observer) -> None:
    """Train, and tell an observer."""
    from groupwise.training.loop import train

    train(run, **{KEYWORD: [observer]})
