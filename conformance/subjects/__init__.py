"""The libraries that can be asked, each behind one adapter."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from conformance.case import Columns, Options

SUBJECTS: dict[str, str] = {
    "ours": "conformance.subjects.ours:Ours",
    "verl_core_algos": "conformance.subjects.verl_core_algos:VerlCoreAlgos",
    "trl_grpo": "conformance.subjects.trl_grpo:TrlGrpo",
}
"""Name -> module:class. A module is imported only when its subject is asked for, so peers stay optional."""


class Subject(Protocol):
    """A library under test."""

    title: str
    """Name and version, for people."""
    versions: dict[str, str]
    """Package -> installed version, for whoever wants to repeat the run."""

    def supports(self, method: str, options: Options, columns: Columns) -> str | None:
        """None when the question can be put, otherwise the reason why it cannot."""
        ...

    def advantage(self, method: str, options: Options, columns: Columns) -> list[float]:
        """The credit of every row, in the order of the rows."""
        ...


def load(name: str) -> Subject:
    """The subject of a name, or of `module:Class` for one that lives elsewhere."""
    place = SUBJECTS.get(name, name)
    if ":" not in place:
        raise ValueError(f"subject {name!r} is not known; choose one of {', '.join(SUBJECTS)} or give module:Class")
    module, _, attribute = place.partition(":")
    return cast(Subject, getattr(importlib.import_module(module), attribute)())
