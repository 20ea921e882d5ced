"""The judge of a run: each question is asked once, and the answers are checked, counted and recorded."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from groupwise.parts.slots import Judge
from groupwise.rollout.judges import JudgeCall, Judgement, JudgeQuestion, RecordedJudge
from groupwise.system.errors import EngineFault, FileError
from groupwise.system.json_text import to_canonical_json
from groupwise.system.secrets import redact
from groupwise.system.text import escape_surrogates


@dataclass
class JudgeCost:
    """The cost of an update's questions, asked now or before the run was interrupted."""

    questions: int = 0
    calls: int = 0
    """Calls of the judge for questions that no earlier update had asked."""
    unreadable: int = 0
    """Calls without a score."""
    fallbacks: int = 0
    _counted: set[str] = field(default_factory=set)

    def count(self, digest: str, judgement: Judgement, *, is_new: bool) -> None:
        """Count a judgement once per update; count its calls only in the update that asked first."""
        if digest in self._counted:
            return
        self._counted.add(digest)
        self.fallbacks += judgement.is_fallback
        if is_new:
            self.calls += len(judgement.calls)
            self.unreadable += sum(bool(call.fault) for call in judgement.calls)


class LiveJudge:
    """The judge of a run. A rule is called; the answers of a recorded judge are kept in the record."""

    def __init__(self, part: Judge, path: Path, *, may_write: bool = True) -> None:
        is_recorded = isinstance(part, RecordedJudge)
        self._part, self._record = part, JudgeRecord(path, may_write=may_write) if is_recorded else None

    def check(self) -> None:
        """Raise an error if the judge cannot work, before any rollout."""
        if isinstance(self._part, RecordedJudge) and self._record is not None:
            self._part.check(is_new=self._record.num_calls == 0)

    @property
    def is_recorded(self) -> bool:
        return self._record is not None

    def ask(self, questions: Sequence[JudgeQuestion], cost: JudgeCost, *, update: int) -> list[float]:
        """A score for each question; the cost of the update is increased."""
        cost.questions += len(questions)
        if not isinstance(self._part, RecordedJudge) or self._record is None:
            return self._part(questions)
        asked = [self._part.write_questions(question) for question in questions]
        digests = [
            [hashlib.sha256(to_canonical_json(sample).encode()).hexdigest()[:32] for sample in samples]
            for samples in asked
        ]
        unsettled = {
            digest: sample
            for of_question, samples in zip(digests, asked, strict=True)
            for digest, sample in zip(of_question, samples, strict=True)
            if digest not in self._record.settled
        }
        if unsettled:
            self._settle(self._part, self._record, unsettled, update)
        averages = []
        for of_question in digests:
            scores = []
            for digest in of_question:
                asked_in, judgement = self._record.settled[digest]
                assert judgement.score is not None, "what is settled has a score"
                cost.count(digest, judgement, is_new=asked_in == update)
                scores.append(judgement.score)
            averages.append(scores[0] if len(scores) == 1 else math.fsum(scores) / len(scores))
        return averages

    def _settle(self, part: RecordedJudge, record: JudgeRecord, unsettled: dict[str, Any], update: int) -> None:
        where = f"algorithm.judge ({type(part).__name__})"
        if part.max_calls is not None and record.num_calls + len(unsettled) > part.max_calls:
            raise EngineFault(
                f"{where}: update {update} has {len(unsettled)} things to ask, and of {part.max_calls} calls "
                f"{record.num_calls} are spent; raise algorithm.judge.max_calls and continue with --resume"
            )
        names, samples, trouble = list(unsettled), list(unsettled.values()), ""
        for place, judgement in part.ask(samples):
            if judgement.calls:
                record.write(names[place], samples[place], judgement, update=update)
                if judgement.score is None and not trouble:
                    trouble = part.explain(judgement)
        if trouble:
            raise EngineFault(f"{where}: {trouble}")


# The record of a judge in the run folder: one line of JSON per question.
#
# A line is written as soon as there is an answer, and the question is not asked again. So an interrupted run resumes
# with its answers, and its numbers are bit-exact.


class JudgeRecord:
    """The questions and answers of a judge in a run, by the question's digest; thread-safe for writing."""

    def __init__(self, path: Path, *, may_write: bool = True) -> None:
        self._path, self._may_write = path, may_write
        self._lock = Lock()
        self.settled: dict[str, tuple[int, Judgement]] = {}
        """The update that asked first, and the judgement with a score."""
        self.num_calls = 0
        """Calls of the run so far, also those without a score."""
        self._read()

    def write(self, digest: str, asked: Mapping[str, Any], judgement: Judgement, *, update: int) -> None:
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
                    "that the folder may be written, then continue with --resume"
                ) from None
            self._keep(digest, judgement, update)

    def _keep(self, digest: str, judgement: Judgement, update: int) -> None:
        self.num_calls += len(judgement.calls)
        if judgement.score is not None:
            self.settled.setdefault(digest, (update, judgement))

    def _read(self) -> None:
        """Read the record; an incomplete last line is dropped, because its question is asked again."""
        if not self._path.exists():
            return
        content = self._path.read_bytes()
        whole, _, rest = content.rpartition(b"\n")
        if rest and self._may_write:  # else another process may be writing that line
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
