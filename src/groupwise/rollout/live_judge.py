"""A judge while a run lasts: it is asked each thing once, and what it says is checked, counted and written down."""

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
    """What the questions of an update cost, whether they were asked now or before the run was cut short."""

    questions: int = 0
    calls: int = 0
    """Calls of the judge for what no earlier update had asked."""
    unreadable: int = 0
    """Those of them from which no score came."""
    fallbacks: int = 0
    _counted: set[str] = field(default_factory=set)

    def count(self, digest: str, judgement: Judgement, *, is_new: bool) -> None:
        """Count a question's judgement, once an update; its calls only in the update that asked first."""
        if digest in self._counted:
            return
        self._counted.add(digest)
        self.fallbacks += judgement.is_fallback
        if is_new:
            self.calls += len(judgement.calls)
            self.unreadable += sum(bool(call.fault) for call in judgement.calls)


class LiveJudge:
    """The judge of a run; a rule is called, and what a recorded one says is kept in the record."""

    def __init__(self, part: Judge, path: Path, *, may_write: bool = True) -> None:
        is_recorded = isinstance(part, RecordedJudge)
        self._part, self._record = part, JudgeRecord(path, may_write=may_write) if is_recorded else None

    def check(self) -> None:
        """Raise where the judge cannot work, before anything is played."""
        if isinstance(self._part, RecordedJudge) and self._record is not None:
            self._part.check(is_new=self._record.num_calls == 0)

    @property
    def is_recorded(self) -> bool:
        return self._record is not None

    def ask(self, questions: Sequence[JudgeQuestion], cost: JudgeCost, *, update: int) -> list[float]:
        """A score for each question; what an update asks is added to its cost."""
        cost.questions += len(questions)
        if not isinstance(self._part, RecordedJudge) or self._record is None:
            return self._part(questions)
        asked = [self._part.write_questions(question) for question in questions]
        digests = [[digest_question(sample) for sample in samples] for samples in asked]
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
        """Ask what has no answer yet; whatever comes back is written down before anything else happens."""
        where = f"algorithm.judge ({type(part).__name__})"
        if part.max_calls is not None and record.num_calls + len(unsettled) > part.max_calls:
            raise EngineFault(
                f"{where}: update {update} has {len(unsettled)} things to ask, and of {part.max_calls} calls "
                f"{record.num_calls} are spent; raise algorithm.judge.max_calls and go on with --resume"
            )
        names, samples, trouble = list(unsettled), list(unsettled.values()), ""
        for place, judgement in part.ask(samples):
            if judgement.calls:
                record.write(names[place], samples[place], judgement, update=update)
                if judgement.score is None and not trouble:
                    trouble = part.explain(judgement)
        if trouble:
            raise EngineFault(f"{where}: {trouble}")


# The record of a judge: a line of JSON for everything that it was asked, in the run's folder.
#
# A line is written as soon as an answer is there, and what stands in it is not asked again: a run that was cut short
# goes on with the answers that it has, and comes to the same numbers, to the bit.


def digest_question(asked: Mapping[str, Any]) -> str:
    """What names a question: equal questions are equal text."""
    return hashlib.sha256(to_canonical_json(asked).encode()).hexdigest()[:32]


class JudgeRecord:
    """What a judge was asked and answered in a run, by the question's digest; any thread may write."""

    def __init__(self, path: Path, *, may_write: bool = True) -> None:
        self._path, self._may_write = path, may_write
        self._lock = Lock()
        self.settled: dict[str, tuple[int, Judgement]] = {}
        """The update that asked first, and what the judge said that is a score."""
        self.num_calls = 0
        """Calls that the run has made so far, those without a score included."""
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
                    "that the folder may be written, then go on with --resume"
                ) from None
            self._keep(digest, judgement, update)

    def _keep(self, digest: str, judgement: Judgement, update: int) -> None:
        self.num_calls += len(judgement.calls)
        if judgement.score is not None:
            self.settled.setdefault(digest, (update, judgement))

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
