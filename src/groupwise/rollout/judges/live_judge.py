"""A judge while a run lasts: it is asked each thing once, and what it says is checked, counted and written down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.core.errors import EngineFault
from groupwise.core.parts.slots import Judge
from groupwise.rollout.judges.protocol import JudgeQuestion, RecordedJudge
from groupwise.rollout.judges.record import JudgeRecord, RecordedJudgement, digest_question


@dataclass
class JudgeCost:
    """What the questions of an update cost, whether they were asked now or before the run was cut short."""

    questions: int = 0
    """What measures asked."""
    calls: int = 0
    """Calls of the judge for what no earlier update had asked."""
    unreadable: int = 0
    """Those of them from which no score came."""
    fallbacks: int = 0
    """Questions that got the declared fallback."""
    _counted: set[str] = field(default_factory=set)

    def count(self, digest: str, settled: RecordedJudgement, update: int) -> None:
        """Count a question's judgement, once an update."""
        if digest in self._counted:
            return
        self._counted.add(digest)
        self.fallbacks += settled.judgement.is_fallback
        if settled.update == update:
            self.calls += len(settled.judgement.calls)
            self.unreadable += sum(bool(call.fault) for call in settled.judgement.calls)


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
        """Whether its calls are counted and written down."""
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
            if self._record.find(digest) is None
        }
        if unsettled:
            self._settle(self._part, self._record, unsettled, update)
        return [self._average(self._record, of_question, cost, update) for of_question in digests]

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

    def _average(self, record: JudgeRecord, digests: Sequence[str], cost: JudgeCost, update: int) -> float:
        scores = []
        for digest in digests:
            settled = record.find(digest)
            assert settled is not None, "everything that was asked is settled by now"
            assert settled.judgement.score is not None, "what is settled has a score"
            cost.count(digest, settled, update)
            scores.append(settled.judgement.score)
        return scores[0] if len(scores) == 1 else math.fsum(scores) / len(scores)
