"""Judges for the verifier's process: one that works, and one for each way to fail."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from groupwise.system.errors import RecordError

Judge = Callable[[Mapping[str, Any]], float]


def by_behaviour() -> Judge:
    """Do what the request asks for, and score it."""
    behaviours: dict[str, Callable[[], Any]] = {
        "right": lambda: 1.0,
        "half": lambda: 0.5,
        "print": lambda: (sys.stdout.write("noise"), 1.0)[1],
        "raise": _raise,
        "spin": _spin,
        "compute": lambda: float(pow(3, 10**9) > 0),  # one call of compiled code that holds the interpreter's lock
        "sleep": lambda: time.sleep(60) or 1.0,
        "die": lambda: os._exit(3),
        "crash": lambda: (os.abort(), 1.0)[1],
        "nan": lambda: float("nan"),
        "fault": _fault,
        "memory": lambda: float(len(bytearray(2**40))),
        "pid": lambda: float(os.getpid()),
        "text": lambda: "much",
        "object": object,
        "many": lambda: 7.0,
    }
    return lambda request: behaviours[request["answer"]]()


def import_missing_package() -> Judge:
    """A judge whose package is not there."""
    import no_such_package_as_this  # type: ignore[import-not-found]

    return no_such_package_as_this.judge  # type: ignore[no-any-return]


def die_at_once() -> Judge:
    """A judge that takes its process with it."""
    os._exit(1)


def _raise() -> float:
    raise ValueError("not a number\nand more")


def _spin() -> float:
    while True:
        pass


def _fault() -> float:
    raise RecordError("the task belongs to another version; make it again")
