"""How cases of the campaign end: what went wrong in each, counted by kind; and text without anybody's paths."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INTOLERABLE = {
    "tracebacks": "an error came out as a traceback, not as a sentence",
    "hangs": "something did not end in its time",
    "crashes": "the process died of a signal or of its memory",
    "lost_updates": "updates, evaluations or weights of a resumed run that are missing or not those of the whole one",
    "executed_answers": "an answer ran code, reached out, or changed what later answers score",
    "silent_successes": "status 0, or a rollout that counts, though it could not have gone well",
    "unexplained_endings": "a status that says nothing, or a status 2 without exactly one sentence",
    "sent_controls": "control or bidi characters went to the terminal as they were",
    "leftover_processes": "a process that outlived the one that started it",
}
"""What may never happen, and what it means."""
MAX_LISTED = 40
"""Failing cases that a result lists; the rest is only counted."""
MAX_CHARACTERS = 600
"""Of what a failing case said."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Something that may never happen, and what was seen."""

    kind: str
    message: str

    def __post_init__(self) -> None:
        if self.kind not in INTOLERABLE:
            raise ValueError(f"there is no counter {self.kind!r}")


@dataclass(kw_only=True)
class Ending:
    """How a case ended."""

    case: int
    """Its number: with the seed of the campaign it can be played again."""
    what: str = ""
    """What was done, in words."""
    ended: str = ""
    """How it ended, in a word, for the counts."""
    num: int = 1
    """How many kills, files or answers it stands for."""
    failures: list[Failure] = field(default_factory=list)

    def fail(self, kind: str, message: str) -> None:
        """Note something that may never happen."""
        message = without_paths(message)
        if len(message) > MAX_CHARACTERS:  # what it was and how it ended say most
            message = f"{message[: MAX_CHARACTERS // 4]} … {message[-MAX_CHARACTERS * 3 // 4 :]}"
        self.failures.append(Failure(kind=kind, message=message))

    def as_json(self) -> dict[str, Any]:
        """As a line of a shard's file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Ending:
        """From a line of a shard's file."""
        failures = [Failure(**failure) for failure in content["failures"]]
        return cls(**{**content, "failures": failures})


def summarise(endings: Iterable[Ending], *, seed: int) -> dict[str, Any]:
    """Counts of endings and failures, and the first failing cases, each with all that is needed to repeat it."""
    ordered = sorted(endings, key=lambda ending: ending.case)
    counts = Counter(failure.kind for ending in ordered for failure in ending.failures)
    ended = Counter(ending.ended for ending in ordered)
    failing = [ending for ending in ordered if ending.failures]
    return {
        "cases": sum(ending.num for ending in ordered),
        **{kind: counts[kind] for kind in INTOLERABLE},
        "ended": dict(sorted(ended.items())),
        "not_played": [without_paths(ending.what) for ending in ordered if not (ending.num or ending.failures)],
        "failing_cases": len(failing),
        "failures": [
            {"seed": seed, "case": ending.case, "what": without_paths(ending.what), **asdict(failure)}
            for ending in failing[:MAX_LISTED]
            for failure in ending.failures[:3]
        ],
    }


def without_paths(text: str) -> str:
    """Text without the folders of this machine, so that results can be published and compared."""
    text = text.replace(str(ROOT), ".")
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/[^\s'\":,;)\]]*/", "…/", text)
    return re.sub(r"(?<![\w.…])/(?:[\w.+-]+/){2,}", "…/", text)
