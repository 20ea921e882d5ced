"""The record of a judge: a line of JSON for everything that it was asked, in the run's folder.

A line is written as soon as an answer is there, and what stands in it is not asked again: a run that was cut short goes
on with the answers that it has, and comes to the same numbers, to the bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from groupwise.core.errors import FileError
from groupwise.core.text.json_text import to_canonical_json
from groupwise.core.text.safe_text import escape_surrogates
from groupwise.core.text.secrets import redact
from groupwise.rollout.judges.protocol import JudgeCall, Judgement


@dataclass(frozen=True, kw_only=True)
class RecordedJudgement:
    """A judgement, and the update that asked for it first."""

    update: int
    """Number of the update."""
    judgement: Judgement
    """What came of it."""


def digest_question(asked: Mapping[str, Any]) -> str:
    """What names a question: equal questions are equal text."""
    return hashlib.sha256(to_canonical_json(asked).encode()).hexdigest()[:32]


class JudgeRecord:
    """What a judge was asked and answered in a run, by the question's digest; any thread may write."""

    def __init__(self, path: Path, *, may_write: bool = True) -> None:
        self._path, self._may_write = path, may_write
        self._lock = Lock()
        self._settled: dict[str, RecordedJudgement] = {}
        self.num_calls = 0
        """Calls that the run has made so far, those without a score included."""
        self._read()

    def find(self, digest: str) -> RecordedJudgement | None:
        """What the judge said when this was asked; None = it has not said anything that is a score."""
        return self._settled.get(digest)

    def write(self, digest: str, asked: Mapping[str, Any], judgement: Judgement, *, update: int) -> None:
        """Write down what came of a question."""
        calls = [
            asdict(call)
            | {"answered": None if call.answered is None else escape_surrogates(redact(call.answered))}
            | {"fault": redact(call.fault)}
            for call in judgement.calls
        ]
        row = {
            "question": digest,
            "update": update,
            "asked": asked,
            "score": judgement.score,
            "is_fallback": judgement.is_fallback,
            "calls": calls,
        }
        with self._lock:
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            except OSError as error:
                raise FileError(
                    f"{self._path}: what the judge said could not be written ({error.strerror}); free some space, see "
                    "that the folder may be written, then go on with --resume"
                ) from None
            self._keep(digest, judgement, update)

    def _keep(self, digest: str, judgement: Judgement, update: int) -> None:
        self.num_calls += len(judgement.calls)
        if judgement.score is not None:
            self._settled.setdefault(digest, RecordedJudgement(update=update, judgement=judgement))

    def _read(self) -> None:
        """Read what is there; a last line that was cut short is dropped, since its question will be asked again."""
        if not self._path.exists():
            return
        content = self._path.read_bytes()
        whole, _, rest = content.rpartition(b"\n")
        if rest and self._may_write:  # somebody else may be writing that line right now
            with self._path.open("r+b") as file:
                file.truncate(len(whole) + 1 if whole else 0)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                calls = tuple(JudgeCall(**call) for call in row["calls"])
                judgement = Judgement(score=row["score"], calls=calls, is_fallback=row["is_fallback"])
                self._keep(str(row["question"]), judgement, int(row["update"]))
            except (ValueError, TypeError, KeyError):
                raise FileError(
                    f"{self._path}, line {number}: this is no record of a judge's answer; restore the file, or take it "
                    "away to have everything asked again"
                ) from None
