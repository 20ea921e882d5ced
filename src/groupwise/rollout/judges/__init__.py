"""Judges: who answers a question about an attempt with a number. A rule, a function, or a model behind a server."""

from __future__ import annotations

from groupwise.rollout.judges.endpoint_judge import EndpointJudge
from groupwise.rollout.judges.protocol import JudgeCall, Judgement, JudgeQuestion, RecordedJudge
from groupwise.rollout.judges.simple_judges import CheckedLines, CheckedSteps, FunctionJudge, PhraseJudge

__all__ = [
    "CheckedLines",
    "CheckedSteps",
    "EndpointJudge",
    "FunctionJudge",
    "JudgeCall",
    "JudgeQuestion",
    "Judgement",
    "PhraseJudge",
    "RecordedJudge",
]
