"""Environments: the protocol, the worlds that come with groupwise, and the conformance suite for your own."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.core.rules import RuleResult
from groupwise.envs.alfworld.environment import Alfworld
from groupwise.envs.aliased.environment import Aliased
from groupwise.envs.babyai.environment import Babyai
from groupwise.envs.bfcl.environment import Bfcl
from groupwise.envs.checker.suite import check_environment
from groupwise.envs.countdown.environment import Countdown
from groupwise.envs.data_set.environment import DataSet
from groupwise.envs.environment import (
    AttemptEnded,
    Environment,
    EnvironmentPart,
    Expert,
    Forkable,
    HasVocabulary,
    Observation,
    Outcome,
)
from groupwise.envs.grids.boxes import Boxes
from groupwise.envs.grids.gridworld import Gridworld
from groupwise.envs.grids.sokoban import Sokoban
from groupwise.envs.gymnasium_text import Gymnasium
from groupwise.envs.household.environment import Household
from groupwise.envs.identity import Identity
from groupwise.envs.java_worlds.scienceworld import Scienceworld
from groupwise.envs.java_worlds.textworld_express import TextworldExpress
from groupwise.envs.kit.panel import SPLITS, check_disjoint, panel_hash
from groupwise.envs.kit.panel_file import PanelFile
from groupwise.envs.kit.progress import Progress
from groupwise.envs.lookup import Lookup
from groupwise.envs.math.environment import Math
from groupwise.envs.mixture import Mixture
from groupwise.envs.openenv.environment import Openenv
from groupwise.envs.package_games.gem import Gem
from groupwise.envs.package_games.textarena import Textarena
from groupwise.envs.ranked_lists.environment import RankedLists
from groupwise.envs.reasoning_gym.environment import ReasoningGym
from groupwise.envs.search_qa.environment import SearchQa
from groupwise.envs.textworld.environment import Textworld
from groupwise.envs.webshop.environment import Webshop
from groupwise.envs.webshop.storefront import Storefront
from groupwise.envs.worked_sums.environment import WorkedSums

ENVS: dict[str, type[Part]] = {
    "household": Household,
    "gridworld": Gridworld,
    "boxes": Boxes,
    "countdown": Countdown,
    "worked_sums": WorkedSums,
    "ranked_lists": RankedLists,
    "lookup": Lookup,
    "identity": Identity,
    "aliased": Aliased,
    "gymnasium": Gymnasium,
    "alfworld": Alfworld,
    "textworld": Textworld,
    "textworld_express": TextworldExpress,
    "scienceworld": Scienceworld,
    "reasoning_gym": ReasoningGym,
    "math": Math,
    "data_set": DataSet,
    "storefront": Storefront,
    "webshop": Webshop,
    "search_qa": SearchQa,
    "bfcl": Bfcl,
    "babyai": Babyai,
    "sokoban": Sokoban,
    "textarena": Textarena,
    "gem": Gem,
    "openenv": Openenv,
    "mixture": Mixture,
}

__all__ = [
    "ENVS",
    "SPLITS",
    "Alfworld",
    "Aliased",
    "AttemptEnded",
    "Babyai",
    "Bfcl",
    "Boxes",
    "Countdown",
    "DataSet",
    "Environment",
    "EnvironmentPart",
    "Expert",
    "Forkable",
    "Gem",
    "Gridworld",
    "Gymnasium",
    "HasVocabulary",
    "Household",
    "Identity",
    "Lookup",
    "Math",
    "Mixture",
    "Observation",
    "Openenv",
    "Outcome",
    "PanelFile",
    "Progress",
    "RankedLists",
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
    "WorkedSums",
    "check_disjoint",
    "check_environment",
    "panel_hash",
]
