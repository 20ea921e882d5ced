"""Environments: the protocol, the worlds that come with groupwise, and the checker for your own."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.core.rules import RuleResult
from groupwise.envs.alfworld import Alfworld
from groupwise.envs.babyai import Babyai
from groupwise.envs.bfcl import Bfcl
from groupwise.envs.boxes import Boxes
from groupwise.envs.checker import check_environment
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
from groupwise.envs.gem_games import Gem
from groupwise.envs.gridworld import Gridworld
from groupwise.envs.gymnasium_text import Gymnasium
from groupwise.envs.household import Household
from groupwise.envs.identity import Identity
from groupwise.envs.lookup import Lookup
from groupwise.envs.math_problems import Math
from groupwise.envs.openenv_client import Openenv
from groupwise.envs.panel import SPLITS, check_disjoint, panel_hash
from groupwise.envs.panel_file import PanelFile
from groupwise.envs.progress import Progress
from groupwise.envs.reasoning_gym import ReasoningGym
from groupwise.envs.scienceworld import Scienceworld
from groupwise.envs.search_qa import SearchQa
from groupwise.envs.sokoban import Sokoban
from groupwise.envs.storefront import Storefront
from groupwise.envs.textarena_games import Textarena
from groupwise.envs.textworld_express import TextworldExpress
from groupwise.envs.textworld_games import Textworld
from groupwise.envs.webshop import Webshop

ENVS: dict[str, type[Part]] = {
    "household": Household,
    "gridworld": Gridworld,
    "boxes": Boxes,
    "countdown": Countdown,
    "lookup": Lookup,
    "identity": Identity,
    "gymnasium": Gymnasium,
    "alfworld": Alfworld,
    "textworld": Textworld,
    "textworld_express": TextworldExpress,
    "scienceworld": Scienceworld,
    "reasoning_gym": ReasoningGym,
    "math": Math,
    "storefront": Storefront,
    "webshop": Webshop,
    "search_qa": SearchQa,
    "bfcl": Bfcl,
    "babyai": Babyai,
    "sokoban": Sokoban,
    "textarena": Textarena,
    "gem": Gem,
    "openenv": Openenv,
}

__all__ = [
    "ENVS",
    "SPLITS",
    "Alfworld",
    "AttemptEnded",
    "Babyai",
    "Bfcl",
    "Boxes",
    "Countdown",
    "Environment",
    "EnvironmentPart",
    "Expert",
    "Forkable",
    "Gem",
    "Gridworld",
    "Gymnasium",
    "Household",
    "Identity",
    "Lookup",
    "Math",
    "Observation",
    "Openenv",
    "Outcome",
    "PanelFile",
    "Progress",
    "ReasoningGym",
    "RuleResult",
    "Scienceworld",
    "SearchQa",
    "Sokoban",
    "Storefront",
    "Textarena",
    "Textworld",
    "TextworldExpress",
    "Webshop",
    "check_disjoint",
    "check_environment",
    "panel_hash",
]
