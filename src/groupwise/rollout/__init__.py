"""Environments, engines and memory make trajectories: the episode loop and what it is put together from."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.rollout.actions import Choice, Tagged, WholeResponse
from groupwise.rollout.attempt_requests import AttemptRequest
from groupwise.rollout.guided import Guided
from groupwise.rollout.memory import AnchoredWindow, Full, Window
from groupwise.rollout.plans import AttemptPlan, Flat, Group, Played, PlayedRound, Prior, TopUp
from groupwise.rollout.prompts import PromptTemplate
from groupwise.rollout.published_frame import PublishedFrame
from groupwise.rollout.reflection import Reflection

MEMORIES: dict[str, type[Part]] = {"window": Window, "full": Full, "anchored_window": AnchoredWindow}

ACTION_RULES: dict[str, type[Part]] = {"whole_response": WholeResponse, "choice": Choice, "tagged": Tagged}

PLANS: dict[str, type[Part]] = {"flat": Flat, "guided": Guided, "top_up": TopUp}

TEMPLATES: dict[str, type[Part]] = {"prompt_template": PromptTemplate, "published_frame": PublishedFrame}

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
    "Played",
    "PlayedRound",
    "Prior",
    "PromptTemplate",
    "PublishedFrame",
    "Reflection",
    "Tagged",
    "TopUp",
    "WholeResponse",
    "Window",
]
