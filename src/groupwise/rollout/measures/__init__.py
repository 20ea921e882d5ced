"""What a model or a judge says of attempts before credit is given: measures."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.rollout.measures.answer_potential import AnswerPotential
from groupwise.rollout.measures.effective_rank import EffectiveRank
from groupwise.rollout.measures.expert_score import ExpertScore
from groupwise.rollout.measures.forced_answers import ForcedAnswers
from groupwise.rollout.measures.item_tokens import ItemTokens
from groupwise.rollout.measures.judge_score import JudgeScore
from groupwise.rollout.measures.judged_segments import JudgedSegments
from groupwise.rollout.measures.prover_values import ProverValues
from groupwise.rollout.measures.reference_score import ReferenceScore
from groupwise.rollout.measures.response_states import ResponseEmbedding, read_response_states
from groupwise.rollout.measures.right_diversity import RightDiversity
from groupwise.rollout.measures.segment_values import SegmentValues
from groupwise.rollout.measures.tempered_score import TemperedScore
from groupwise.rollout.measures.tools import NEEDS, Continuation, Tools

MEASURES: dict[str, type[Part]] = {
    "judge_score": JudgeScore,
    "reference_score": ReferenceScore,
    "segment_values": SegmentValues,
    "forced_answers": ForcedAnswers,
    "answer_potential": AnswerPotential,
    "tempered_score": TemperedScore,
    "response_embedding": ResponseEmbedding,
    "effective_rank": EffectiveRank,
    "right_diversity": RightDiversity,
    "judged_segments": JudgedSegments,
    "item_tokens": ItemTokens,
    "expert_score": ExpertScore,
    "prover_values": ProverValues,
}

__all__ = [
    "MEASURES",
    "NEEDS",
    "AnswerPotential",
    "Continuation",
    "EffectiveRank",
    "ExpertScore",
    "ForcedAnswers",
    "ItemTokens",
    "JudgeScore",
    "JudgedSegments",
    "ProverValues",
    "ReferenceScore",
    "ResponseEmbedding",
    "RightDiversity",
    "SegmentValues",
    "TemperedScore",
    "Tools",
    "read_response_states",
]
