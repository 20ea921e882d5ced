"""What a model or a judge says of attempts before credit is given: measures, and the judges that they may ask."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.rollout.measures.judge_score import JudgeScore
from groupwise.rollout.measures.phrase_judge import PhraseJudge
from groupwise.rollout.measures.reference_score import ReferenceScore
from groupwise.rollout.measures.tools import NEEDS, JudgeQuestion, Tools

MEASURES: dict[str, type[Part]] = {"judge_score": JudgeScore, "reference_score": ReferenceScore}

JUDGES: dict[str, type[Part]] = {"phrase_judge": PhraseJudge}

__all__ = [
    "JUDGES",
    "MEASURES",
    "NEEDS",
    "JudgeQuestion",
    "JudgeScore",
    "PhraseJudge",
    "ReferenceScore",
    "Tools",
]
