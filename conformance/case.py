"""What a conformance case is, and what is put to a subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Columns = Mapping[str, Sequence[Any]]
"""One list per column, all of one length: task, rollout, index, reward and, where a case needs them, more."""

Options = Mapping[str, Any]
"""Keyword arguments of the method; an option that is not named is the subject's own default."""

Kind = Literal["law", "convention"]
"""law: any correct library must pass. convention: published practice differs, and the case says how."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question to a subject: the credit of every row of a table under a method."""

    method: str
    options: Options
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["reward"])


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Where an answer misses its expectation."""

    actual: str
    expected: str


class Expectation(Protocol):
    """What must hold of the answers; it may ask for more than one table."""

    def requests(self, case: Case) -> list[Request]:
        """The questions to put, in order."""
        ...

    def judge(self, case: Case, answers: list[list[float]]) -> Fault | None:
        """None when the answers are right."""
        ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """One named demand on a library that computes group-based credit.

    Example:
        `Case(name="four-equal-rewards-get-zero", why="R2", method="grpo", columns=single_step(q=[1, 1, 1, 1]),
        expect=Zero())`
    """

    name: str
    """A kebab-case sentence, unique in the suite."""
    why: str
    """One sentence with its source: a thread, or a section of conformance/numbers.md."""
    method: str
    columns: Columns
    expect: Expectation
    options: Options = field(default_factory=dict)
    kind: Kind = "law"
    trap: int | None = None
    """Number of the correctness trap that the case guards against, where there is one."""

    def request(self) -> Request:
        return Request(method=self.method, options=self.options, columns=self.columns)
