"""Environments: the protocol, the worlds that come with groupwise, and the checker for your own."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.envs.boxes import Boxes
from groupwise.envs.checker import RuleResult, check_environment
from groupwise.envs.countdown import Countdown
from groupwise.envs.environment import (
    AttemptEnded,
    Environment,
    EnvironmentPart,
    Expert,
    Forkable,
    Observation,
    Outcome,
)
from groupwise.envs.gridworld import Gridworld
from groupwise.envs.gymnasium_text import Gymnasium
from groupwise.envs.household import Household
from groupwise.envs.identity import Identity
from groupwise.envs.lookup import Lookup
from groupwise.envs.panel import SPLITS, check_disjoint, panel_hash
from groupwise.envs.progress import Progress

ENVS: dict[str, type[Part]] = {
    "household": Household,
    "gridworld": Gridworld,
    "boxes": Boxes,
    "countdown": Countdown,
    "lookup": Lookup,
    "identity": Identity,
    "gymnasium": Gymnasium,
}

__all__ = [
    "ENVS",
    "SPLITS",
    "AttemptEnded",
    "Boxes",
    "Countdown",
    "Environment",
    "EnvironmentPart",
    "Expert",
    "Forkable",
    "Gridworld",
    "Gymnasium",
    "Household",
    "Identity",
    "Lookup",
    "Observation",
    "Outcome",
    "Progress",
    "RuleResult",
    "check_disjoint",
    "check_environment",
    "panel_hash",
]
