"""Judges: who answers a question about an attempt with a number. A rule, a function, or a model behind a server."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.rollout.judges.endpoint_judge import EndpointJudge
from groupwise.rollout.judges.function_judge import FunctionJudge
from groupwise.rollout.judges.phrase_judge import PhraseJudge
from groupwise.rollout.judges.protocol import JudgeCall, Judgement, JudgeQuestion, RecordedJudge
from groupwise.rollout.judges.rule_judges import CheckedLines, CheckedSteps

JUDGES: dict[str, type[Part]] = {
    "phrase_judge": PhraseJudge,
    "checked_steps": CheckedSteps,
    "checked_lines": CheckedLines,
    "function_judge": FunctionJudge,
    "endpoint_judge": EndpointJudge,
}

__all__ = [
    "JUDGES",
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
