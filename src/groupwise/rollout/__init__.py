"""From tasks to trajectories: curricula, prompts, action parsers, environment runners, plans, judges and scorers."""

from __future__ import annotations

from groupwise.parts.part import Part
from groupwise.rollout.actions import Choice, Tagged, WholeResponse
from groupwise.rollout.endpoint_judge import EndpointJudge
from groupwise.rollout.judges import CheckedLines, CheckedSteps, FunctionJudge, PhraseJudge
from groupwise.rollout.plans import (
    Flat,
    Group,
    Hinted,
    PlanTools,
    Played,
    PlayedRound,
    RolloutPlan,
    RolloutRequest,
    TopUp,
)
from groupwise.rollout.prompts import AnchoredWindow, Full, PromptTemplate, PublishedTemplate, TemplateFile, Window
from groupwise.rollout.scorers import JudgedSegments, JudgeScore, ReferenceScore, ResponseEmbedding
from groupwise.rollout.tasks import CurriculumSlot, Shuffled

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "scorer": {
        "judge_score": JudgeScore,
        "reference_score": ReferenceScore,
        "response_embedding": ResponseEmbedding,
        "judged_segments": JudgedSegments,
    },
    "judge": {
        "phrase_judge": PhraseJudge,
        "checked_steps": CheckedSteps,
        "checked_lines": CheckedLines,
        "function_judge": FunctionJudge,
        "endpoint_judge": EndpointJudge,
    },
    "history": {"window": Window, "full": Full, "anchored_window": AnchoredWindow},
    "action_parser": {"whole_response": WholeResponse, "choice": Choice, "tagged": Tagged},
    "plan": {"flat": Flat, "hinted": Hinted, "top_up": TopUp},
    "template": {
        "prompt_template": PromptTemplate,
        "published_template": PublishedTemplate,
        "template_file": TemplateFile,
    },
    "curriculum": {"shuffled": Shuffled},
}
"""Slot -> kind -> class."""
