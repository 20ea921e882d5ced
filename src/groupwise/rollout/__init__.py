"""Playing attempts: environments, an engine and prompts make trajectories; plans say which attempts to make."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.rollout.actions import Choice, Tagged, WholeResponse
from groupwise.rollout.plans.guided import Guided
from groupwise.rollout.plans.plan import AttemptPlan, Flat, Group, PlanTools, Played, PlayedRound, TopUp
from groupwise.rollout.plans.reflection import Reflection
from groupwise.rollout.plans.requests import AttemptRequest
from groupwise.rollout.prompts.memory import AnchoredWindow, Full, Window
from groupwise.rollout.prompts.prompter import PromptTemplate
from groupwise.rollout.prompts.published_template import PublishedTemplate

MEMORIES: dict[str, type[Part]] = {"window": Window, "full": Full, "anchored_window": AnchoredWindow}

ACTION_RULES: dict[str, type[Part]] = {"whole_response": WholeResponse, "choice": Choice, "tagged": Tagged}

PLANS: dict[str, type[Part]] = {"flat": Flat, "guided": Guided, "top_up": TopUp}

TEMPLATES: dict[str, type[Part]] = {"prompt_template": PromptTemplate, "published_template": PublishedTemplate}

GUIDANCES: dict[str, type[Part]] = {"reflection": Reflection}

__all__ = [
    "ACTION_RULES",
    "GUIDANCES",
    "MEMORIES",
    "PLANS",
    "TEMPLATES",
    "AnchoredWindow",
    "AttemptPlan",
    "AttemptRequest",
    "Choice",
    "Flat",
    "Full",
    "Group",
    "Guided",
    "PlanTools",
    "Played",
    "PlayedRound",
    "PromptTemplate",
    "PublishedTemplate",
    "Reflection",
    "Tagged",
    "TopUp",
    "WholeResponse",
    "Window",
]
